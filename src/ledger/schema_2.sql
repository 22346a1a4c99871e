-- What an answer cost, and what was known of its session. NULL where nobody said, which is not 0. Tokens do not
-- overlap: `input_tokens` came from no cache and was written to none.

ALTER TABLE route_decisions ADD COLUMN usage TEXT;
ALTER TABLE route_decisions ADD COLUMN stop_reason TEXT;
ALTER TABLE route_decisions ADD COLUMN input_tokens BIGINT;
ALTER TABLE route_decisions ADD COLUMN output_tokens BIGINT;
ALTER TABLE route_decisions ADD COLUMN cached_tokens BIGINT;
ALTER TABLE route_decisions ADD COLUMN cache_write_tokens BIGINT;
ALTER TABLE route_decisions ADD COLUMN session_kind TEXT;
ALTER TABLE route_decisions ADD COLUMN session_evidence TEXT;
