-- A row for each resource that a lock protects. On MySQL and MariaDB, the column
-- resource is VARBINARY(512), because their VARCHAR ignores case, and the engine
-- is InnoDB, because others have no transactions.
CREATE TABLE dlock_fence (resource VARCHAR(512) PRIMARY KEY,
	epoch BIGINT NOT NULL, token BIGINT NOT NULL, checks BIGINT NOT NULL);

CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL);
INSERT INTO account (id, balance) VALUES (7, 100);
