-- A row for each resource that a lock protects. It must be there before the
-- first write.
CREATE TABLE fence (resource VARCHAR(255) PRIMARY KEY, epoch BIGINT NOT NULL, token BIGINT NOT NULL);
INSERT INTO fence (resource, epoch, token) VALUES ('account/7', 0, 0);

CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL);
INSERT INTO account (id, balance) VALUES (7, 100);
