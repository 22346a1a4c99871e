//! Placeholder: filled by its first behaviour.
