//! The number of descriptors that this process may have open.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The hard limit (`RLIMIT_NOFILE`); `u64::MAX` where there is none.
#[must_use]
pub fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Raises the soft limit to the hard one, and says what it is then. The soft limit is small by
/// custom, for programs that use `select`; this one does not.
#[must_use]
pub fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Refused by a sandbox at most, where the soft limit stays what it is.
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.unwrap_or(u64::MAX)
}

/// Whether an operation failed because this process (EMFILE) or the machine (ENFILE) has no
/// descriptor left, or the kernel no memory for one (ENOBUFS, ENOMEM).
#[must_use]
pub fn is_descriptor_shortage(error: &io::Error) -> bool {
    let shortage = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| shortage.contains(&errno))
}
