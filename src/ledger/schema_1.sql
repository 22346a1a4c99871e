-- Times are milliseconds since the Unix epoch. `principal` is empty where clients have no names.

CREATE TABLE route_decisions (
  id INTEGER PRIMARY KEY,
  observed_at BIGINT NOT NULL,
  request_id TEXT NOT NULL,
  principal TEXT NOT NULL,
  session_key TEXT NOT NULL,
  agent TEXT,
  parent_key TEXT,
  dialect TEXT NOT NULL,
  face TEXT NOT NULL,
  route TEXT NOT NULL,
  provider TEXT NOT NULL,
  model TEXT,
  lane TEXT NOT NULL,
  status INTEGER NOT NULL,
  request_bytes BIGINT NOT NULL,
  response_bytes BIGINT NOT NULL,
  first_byte_us BIGINT,
  duration_us BIGINT NOT NULL,
  end_reason TEXT NOT NULL
);
CREATE INDEX route_decisions_session ON route_decisions (session_key, principal, observed_at DESC);
CREATE INDEX route_decisions_parent ON route_decisions (parent_key, principal, session_key) WHERE parent_key IS NOT NULL;
CREATE INDEX route_decisions_time ON route_decisions (observed_at);

CREATE TABLE energy_observations (
  id INTEGER PRIMARY KEY,
  observed_at BIGINT NOT NULL,
  request_id TEXT NOT NULL UNIQUE,
  principal TEXT NOT NULL,
  session_key TEXT NOT NULL,
  source TEXT NOT NULL,
  client_outcome TEXT,
  outcome_kind TEXT,
  outcome_exit_code BIGINT,
  outcome_duration_ms BIGINT,
  outcome_at BIGINT,
  outcome_recorded_at BIGINT
);
CREATE INDEX energy_observations_session ON energy_observations (session_key, principal, observed_at DESC);
CREATE INDEX energy_observations_time ON energy_observations (observed_at);

CREATE TABLE local_energy_observations (
  id INTEGER PRIMARY KEY,
  observed_at BIGINT NOT NULL,
  request_id TEXT NOT NULL UNIQUE,
  principal TEXT NOT NULL,
  session_key TEXT NOT NULL,
  source TEXT NOT NULL,
  client_outcome TEXT,
  outcome_kind TEXT,
  outcome_exit_code BIGINT,
  outcome_duration_ms BIGINT,
  outcome_at BIGINT,
  outcome_recorded_at BIGINT
);
CREATE INDEX local_energy_observations_session ON local_energy_observations (session_key, principal, observed_at DESC);
CREATE INDEX local_energy_observations_time ON local_energy_observations (observed_at);
