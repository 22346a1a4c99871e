-- What is kept of sessions: bounded words and times, no text of anybody. Times are microseconds since the Unix epoch.
-- A session that is not identified has empty words and revision 0.
CREATE TABLE IF NOT EXISTS session_classification (
    scope_kind TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    source TEXT NOT NULL,
    confidence TEXT NOT NULL,
    evidence_code TEXT NOT NULL,
    classification_revision BIGINT NOT NULL,
    remote_attempts BIGINT NOT NULL,
    remote_lease_id TEXT NOT NULL,
    remote_lease_until BIGINT,
    remote_next_eligible_at BIGINT,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (scope_kind, scope_id)
);
CREATE INDEX IF NOT EXISTS session_classification_updated ON session_classification (updated_at);
