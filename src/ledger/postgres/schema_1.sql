-- Times are milliseconds since the Unix epoch. `principal` is empty where clients have no names.
-- `request_id` is unique in each table, so that a batch whose commit was not heard of can be stored again.
-- Names are compared byte by byte, as everywhere else in the gateway.
-- Rows go from one end while they come at the other: dead ones are cleared away long before a fifth of a
-- large table, the default, has died.

CREATE TABLE route_decisions (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  observed_at BIGINT NOT NULL,
  request_id TEXT COLLATE "C" NOT NULL UNIQUE,
  principal TEXT COLLATE "C" NOT NULL,
  session_key TEXT COLLATE "C" NOT NULL,
  agent TEXT COLLATE "C",
  parent_key TEXT COLLATE "C",
  dialect TEXT NOT NULL,
  face TEXT NOT NULL,
  route TEXT NOT NULL,
  provider TEXT NOT NULL,
  model TEXT,
  lane TEXT NOT NULL,
  status BIGINT NOT NULL,
  request_bytes BIGINT NOT NULL,
  response_bytes BIGINT NOT NULL,
  first_byte_us BIGINT,
  duration_us BIGINT NOT NULL,
  end_reason TEXT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX route_decisions_session ON route_decisions (session_key, principal, observed_at DESC);
CREATE INDEX route_decisions_parent ON route_decisions (parent_key, principal, session_key) WHERE parent_key IS NOT NULL;
CREATE INDEX route_decisions_time ON route_decisions (observed_at);

CREATE TABLE energy_observations (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  observed_at BIGINT NOT NULL,
  request_id TEXT COLLATE "C" NOT NULL UNIQUE,
  principal TEXT COLLATE "C" NOT NULL,
  session_key TEXT COLLATE "C" NOT NULL,
  source TEXT NOT NULL,
  client_outcome TEXT,
  outcome_kind TEXT,
  outcome_exit_code BIGINT,
  outcome_duration_ms BIGINT,
  outcome_at BIGINT,
  outcome_recorded_at BIGINT
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX energy_observations_session ON energy_observations (session_key, principal, observed_at DESC);
CREATE INDEX energy_observations_time ON energy_observations (observed_at);

CREATE TABLE local_energy_observations (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  observed_at BIGINT NOT NULL,
  request_id TEXT COLLATE "C" NOT NULL UNIQUE,
  principal TEXT COLLATE "C" NOT NULL,
  session_key TEXT COLLATE "C" NOT NULL,
  source TEXT NOT NULL,
  client_outcome TEXT,
  outcome_kind TEXT,
  outcome_exit_code BIGINT,
  outcome_duration_ms BIGINT,
  outcome_at BIGINT,
  outcome_recorded_at BIGINT
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX local_energy_observations_session ON local_energy_observations (session_key, principal, observed_at DESC);
CREATE INDEX local_energy_observations_time ON local_energy_observations (observed_at);
