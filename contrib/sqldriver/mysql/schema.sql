-- The tables and procedures of dlock. Each statement may be repeated, also
-- while dlock is in use. All times are microseconds since 1970-01-01 00:00:00 UTC.

DELIMITER //

-- COMMIT and ROLLBACK say NO CHAIN NO RELEASE because completion_type may be CHAIN or
-- RELEASE: then each of them would begin a transaction, or close the connection.

-- The procedures keep this mode and this character set. The mode makes a value that is
-- too long an error.
SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'
//
SET NAMES utf8mb4
//

-- The sessions. A change of a session takes a shared lock on its row until the
-- transaction ends. Whatever ends the session takes an exclusive lock, and deletes the
-- row: that removes the lease and the nodes, also if somebody does it by hand.
CREATE TABLE IF NOT EXISTS dlock_session (
    id VARBINARY(64) NOT NULL,
    generation BIGINT NOT NULL,            -- changes with a lower generation are refused
    -- The server on which the session began, and its start: see dlock_here. On any other
    -- server, and after a restart, the session is unknown, because the data may lack the
    -- latest changes.
    era VARBINARY(64) NOT NULL,
    base BIGINT NOT NULL,                  -- copied from dlock_meta
    since BIGINT NOT NULL,                 -- likewise
    PRIMARY KEY (id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//

-- The deadlines of the sessions: a table of its own, so that a heartbeat does not wait
-- for the locks of changes.
CREATE TABLE IF NOT EXISTS dlock_lease (
    session VARBINARY(64) NOT NULL,
    timeout BIGINT NOT NULL,               -- in microseconds
    grace BIGINT NOT NULL,                 -- of the client; the longest counts for all
    deadline BIGINT NOT NULL,              -- after it, any session may end this one
    PRIMARY KEY (session),
    KEY deadline (deadline),
    FOREIGN KEY (session) REFERENCES dlock_session (id) ON DELETE CASCADE
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//

-- The queues. An append locks the row until the transaction ends. So the tokens of a
-- queue become visible in their order.
CREATE TABLE IF NOT EXISTS dlock_queue (
    name VARBINARY(512) NOT NULL,
    last BIGINT NOT NULL,                  -- the last token; new after each append and replacement
    released VARBINARY(256) NULL,          -- the last node whose holder has released an exclusive lock
    used INT NOT NULL,                     -- the day of the last append, as of TO_DAYS
    PRIMARY KEY (name),
    KEY used (used)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//

CREATE TABLE IF NOT EXISTS dlock_node (
    queue VARBINARY(512) NOT NULL,
    name VARBINARY(256) NOT NULL,          -- the prefix, and the token in ten digits or more
    token BIGINT NULL,                     -- null if another program has added the node
    session VARBINARY(64) NULL,            -- likewise
    created BIGINT NOT NULL DEFAULT 0,
    data LONGBLOB NOT NULL,
    PRIMARY KEY (queue, name),
    UNIQUE KEY token (queue, token),
    KEY session (session),
    FOREIGN KEY (session) REFERENCES dlock_session (id) ON DELETE CASCADE
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//

-- The values that holders have kept beside queues. They outlive nodes and queues.
CREATE TABLE IF NOT EXISTS dlock_kept (
    queue VARBINARY(512) NOT NULL,
    token BIGINT NOT NULL,                 -- of the node that kept the value
    value MEDIUMBLOB NOT NULL,
    PRIMARY KEY (queue)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//

CREATE TABLE IF NOT EXISTS dlock_meta (
    one TINYINT NOT NULL,                  -- always 1
    version INT NOT NULL,                  -- of these statements
    floor BIGINT NOT NULL,                 -- no token of a queue whose row was removed is higher
    era VARBINARY(96) NOT NULL DEFAULT '', -- of the data; empty before the first session
    grace BIGINT NOT NULL DEFAULT 0,       -- in microseconds, while it runs
    -- The tokens of an era begin at base: an hour ahead of the clock, and ten seconds above
    -- all that are known, in case the clock is behind. From there they rise at half the
    -- speed of the clock until it has caught up, so that a later era begins above them,
    -- even if its data lack this row.
    base BIGINT NOT NULL DEFAULT 0,
    since BIGINT NOT NULL DEFAULT 0,
    next VARBINARY(96) NOT NULL DEFAULT '', -- the era that begins after its grace
    rest BIGINT NOT NULL DEFAULT 0,        -- what was left of the grace when it was seen last
    seen BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (one)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//

-- Puts into @dlock_here what names this server and its start. All connections compute the
-- same, each of them once, because none outlives the server. Uptime is the clock less the
-- second of the start, modulo 2^64, so a clock that is set later cancels out. UUID() ends
-- with the machine's address.
CREATE PROCEDURE IF NOT EXISTS dlock_here()
    READS SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_start DECIMAL(21);
    BEGIN
        DECLARE CONTINUE HANDLER FOR 1109, 3167 BEGIN END; -- MySQL has it in the other table only
        SELECT (UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS DECIMAL(20)) + 18446744073709551616) % 18446744073709551616
            INTO v_start FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME';
    END;
    IF v_start IS NULL THEN
        SELECT (UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS DECIMAL(20)) + 18446744073709551616) % 18446744073709551616
            INTO v_start FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime';
    END IF;
    IF v_start IS NULL THEN -- the server would look the same after a restart
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the server does not show its uptime';
    END IF;
    SET @dlock_here = MD5(CONCAT(v_start, '/', RIGHT(UUID(), 12), '/', @@GLOBAL.hostname, '/', @@GLOBAL.port, '/', @@GLOBAL.datadir));
    COMMIT AND NO CHAIN NO RELEASE;
END
//

-- Fails on a server that is read-only, also for users to whom the server's rule does not
-- apply. Otherwise a primary that was replaced would renew their sessions.
CREATE PROCEDURE IF NOT EXISTS dlock_primary()
    READS SQL DATA SQL SECURITY INVOKER
BEGIN
    IF CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
    END IF;
END
//

-- Begins a session, and returns 'ok' with the era and the longest grace of any client.
-- Data of another era may lack the latest changes. So their sessions end, and no session
-- begins before all leases of that era are over, that is, for the longest grace. Until
-- then the status is 'wait', and the last columns are the microseconds to wait before the
-- next attempt, and those that are left in all. These are counted down at each attempt, and
-- not stored as a time, because a machine that has just started may get its clock set.
-- The argument p_followed is the number of times that somebody has tried to make the server
-- a replica. The server counts refused attempts, too. While the lease of a session runs, the
-- server has not been a replica: a replica is read-only, and renews none.
CREATE PROCEDURE IF NOT EXISTS dlock_begin(IN p_session VARBINARY(64), IN p_timeout BIGINT,
    IN p_grace BIGINT, IN p_empty_is_new BOOLEAN, IN p_followed BIGINT)
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_last, v_floor, v_base, v_since, v_grace, v_rest, v_seen BIGINT;
    DECLARE v_name, v_era, v_next VARBINARY(96);
    DECLARE v_own, v_longest BIGINT DEFAULT GREATEST(p_timeout, p_grace);
    CALL dlock_primary();
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
        SELECT floor, era, base, since, grace, next, rest, seen INTO v_floor, v_era, v_base, v_since, v_grace, v_next, v_rest, v_seen
            FROM dlock_meta WHERE one = 1 FOR UPDATE;
        SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
        SELECT GREATEST(v_own, v_grace, COALESCE(MAX(grace), 0)) INTO v_longest FROM dlock_lease;
        SET v_name = CONCAT(@dlock_here, '/', p_followed);
        IF v_era LIKE CONCAT(@dlock_here, '/%') AND EXISTS (SELECT 1 FROM dlock_lease WHERE deadline > v_now) THEN
            UPDATE dlock_meta SET era = v_name WHERE one = 1;
            SET v_era = v_name;
        END IF;
        IF v_era <> v_name THEN
            IF v_next = v_name THEN
                SET v_rest = v_rest + v_longest - v_grace - GREATEST(LEAST(v_now - v_seen, v_longest DIV 4), 0);
            ELSEIF p_empty_is_new AND v_era = '' AND v_next = '' AND NOT EXISTS (SELECT 1 FROM dlock_session) THEN
                SET v_rest = 0;
            ELSE
                SET v_rest = v_longest;
            END IF;
            IF v_next <> v_name OR v_rest <= 0 THEN
                DELETE FROM dlock_session;
            END IF;
            IF v_rest <= 0 THEN
                SELECT MAX(last) INTO v_last FROM dlock_queue;
                SET v_last = GREATEST(v_floor, COALESCE(v_last, 0), v_base + GREATEST(v_now - v_since, 0) DIV 2);
                SET v_base = GREATEST(v_now + 3600000000, v_last + 10000000), v_era = v_name, v_since = v_now, v_rest = 0, v_grace = 0;
            ELSE
                SET v_grace = v_longest;
            END IF;
            UPDATE dlock_meta SET era = v_era, base = v_base, since = v_since, grace = v_grace, next = v_name, rest = v_rest, seen = v_now
                WHERE one = 1;
        END IF;
        IF v_era = v_name THEN
            INSERT INTO dlock_session (id, generation, era, base, since) VALUES (p_session, 1, @dlock_here, v_base, v_since);
            INSERT INTO dlock_lease (session, timeout, grace, deadline) VALUES (p_session, p_timeout, v_own, v_now + p_timeout);
        END IF;
        COMMIT AND NO CHAIN NO RELEASE;
        SELECT IF(v_era = v_name, 'ok', 'wait'), v_name, v_longest, GREATEST(LEAST(v_rest, v_longest DIV 5), 1), v_rest;
    END;
END
//

-- Moves the deadline of a session. The second column is the number of microseconds
-- until dlock_expire has work: until the earliest deadline of any session. It is not
-- positive if that has passed.
CREATE PROCEDURE IF NOT EXISTS dlock_beat(IN p_session VARBINARY(64))
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_timeout, v_next BIGINT;
    DECLARE v_era VARBINARY(64);
    DECLARE v_status VARCHAR(8) CHARACTER SET ascii DEFAULT 'unknown';
    CALL dlock_primary();
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
        SELECT timeout INTO v_timeout FROM dlock_lease WHERE session = p_session FOR UPDATE;
        SELECT era INTO v_era FROM dlock_session WHERE id = p_session AND v_timeout IS NOT NULL;
        IF v_era = @dlock_here THEN
            UPDATE dlock_lease SET deadline = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + v_timeout
                WHERE session = p_session;
            SELECT MIN(deadline) INTO v_next FROM dlock_lease;
            SET v_status = 'ok';
        ELSEIF EXISTS (SELECT 1 FROM dlock_meta WHERE era <> '' AND era NOT LIKE CONCAT(@dlock_here, '/%')) THEN
            SET v_status = 'lost'; -- no session begins before a grace
        END IF;
        COMMIT AND NO CHAIN NO RELEASE;
        SELECT v_status,
            COALESCE(GREATEST(v_next, 0) - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 0);
    END;
END
//

-- Ends one session whose deadline has passed, and returns whether it has ended one. If
-- another transaction has locked the session or a node of it, that is left to a later
-- call. A locked node is one that SKIP LOCKED leaves out: MariaDB allows no NOWAIT in a
-- procedure.
CREATE PROCEDURE IF NOT EXISTS dlock_expire()
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE v_passed VARBINARY(64) DEFAULT '';
    DECLARE v_deadline BIGINT DEFAULT -9223372036854775808;
    DECLARE v_dead VARBINARY(64);
    DECLARE v_free, v_nodes BIGINT;
    DECLARE v_status VARCHAR(8) CHARACTER SET ascii DEFAULT 'locked';
    WHILE v_status = 'locked' DO
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION;
        BEGIN
            DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
            SET v_dead = NULL;
            -- The search locks no row of a live session.
            SELECT l.session, l.deadline INTO v_dead, v_deadline
                FROM dlock_lease l STRAIGHT_JOIN dlock_session s ON s.id = l.session
                WHERE l.deadline < v_now AND l.deadline >= v_deadline AND (l.deadline > v_deadline OR l.session > v_passed)
                ORDER BY l.deadline, l.session LIMIT 1 FOR UPDATE SKIP LOCKED;
            IF v_dead IS NULL THEN
                SET v_status = 'none';
            ELSE
                SELECT COUNT(*) INTO v_free FROM dlock_node WHERE session = v_dead FOR UPDATE SKIP LOCKED;
                SELECT COUNT(*) INTO v_nodes FROM dlock_node WHERE session = v_dead;
                IF v_free = v_nodes THEN
                    SET v_status = 'ok';
                    DELETE FROM dlock_session WHERE id = v_dead;
                END IF;
                SET v_passed = v_dead;
            END IF;
            COMMIT AND NO CHAIN NO RELEASE;
        END;
    END WHILE;
    SELECT v_status;
END
//

-- Ends a session at its own request. Appends that run end first.
CREATE PROCEDURE IF NOT EXISTS dlock_end(IN p_session VARBINARY(64))
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_generation BIGINT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
        SELECT generation INTO v_generation FROM dlock_session WHERE id = p_session FOR UPDATE;
        DELETE FROM dlock_session WHERE id = p_session;
        COMMIT AND NO CHAIN NO RELEASE;
        SELECT 'ok';
    END;
END
//

-- Appends a node. The first column is the status: 'ok', 'unknown' or 'stale'. If it is
-- 'ok', the second one is the token, and the others are the nodes of the queue after the
-- commit. All nodes with lower tokens were committed before, so they are in that result,
-- unless they have gone.
CREATE PROCEDURE IF NOT EXISTS dlock_append(IN p_session VARBINARY(64), IN p_generation BIGINT,
    IN p_queue VARBINARY(512), IN p_prefix VARBINARY(224), IN p_data LONGBLOB)
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE v_day INT DEFAULT TO_DAYS(UTC_TIMESTAMP());
    DECLARE v_generation, v_token, v_floor, v_least BIGINT;
    DECLARE v_status VARCHAR(8) CHARACTER SET ascii DEFAULT 'ok';
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
        SELECT generation, base + GREATEST(v_now - since, 0) DIV 2 INTO v_generation, v_least
            FROM dlock_session WHERE id = p_session AND era = @dlock_here LOCK IN SHARE MODE;
        IF v_generation IS NULL THEN
            SET v_status = 'unknown';
        ELSEIF p_generation < v_generation THEN
            SET v_status = 'stale';
        ELSE
            UPDATE dlock_queue SET last = LAST_INSERT_ID(GREATEST(last + 1, v_least, v_now)), used = GREATEST(used, v_day) WHERE name = p_queue;
            IF ROW_COUNT() = 0 THEN
                INSERT INTO dlock_queue (name, last, used) VALUES (p_queue, 0, v_day) ON DUPLICATE KEY UPDATE used = v_day;
                SELECT floor INTO v_floor FROM dlock_meta WHERE one = 1;
                UPDATE dlock_queue SET last = LAST_INSERT_ID(GREATEST(last + 1, v_least, v_floor + 1, v_now)) WHERE name = p_queue;
            END IF;
            SET v_token = LAST_INSERT_ID();
            INSERT INTO dlock_node (queue, name, token, session, created, data)
                VALUES (p_queue, CONCAT(p_prefix, LPAD(v_token, GREATEST(10, LENGTH(v_token)), '0')), v_token, p_session, v_now, p_data);
        END IF;
        COMMIT AND NO CHAIN NO RELEASE;
    END;
    BEGIN
        -- The node stays in spite of an error here. Error 1181 says so, because clients
        -- take most other errors for those of a transaction that was rolled back.
        DECLARE EXIT HANDLER FOR SQLEXCEPTION RESIGNAL SET MYSQL_ERRNO = 1181;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        SELECT v_status, COALESCE(v_token, 0), n.name, IF(n.session = p_session, n.token, 0), IF(n.token = v_token, v_now, 0)
            FROM dlock_meta m LEFT JOIN dlock_node n ON v_status = 'ok' AND n.queue = p_queue WHERE m.one = 1;
        COMMIT AND NO CHAIN NO RELEASE;
    END;
END
//

-- Removes a node of a session. If p_released is true, a holder has released an
-- exclusive lock.
CREATE PROCEDURE IF NOT EXISTS dlock_remove(IN p_session VARBINARY(64), IN p_generation BIGINT,
    IN p_queue VARBINARY(512), IN p_token BIGINT, IN p_released BOOLEAN)
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_generation BIGINT;
    DECLARE v_name VARBINARY(256);
    DECLARE v_status VARCHAR(8) CHARACTER SET ascii DEFAULT 'gone';
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
        SELECT generation INTO v_generation FROM dlock_session WHERE id = p_session AND era = @dlock_here LOCK IN SHARE MODE;
        IF v_generation IS NULL THEN
            SET v_status = 'unknown';
        ELSEIF p_generation < v_generation THEN
            SET v_status = 'stale';
        ELSE
            SELECT name INTO v_name FROM dlock_node WHERE queue = p_queue AND token = p_token AND session = p_session;
        END IF;
        IF v_name IS NOT NULL THEN
            IF p_released THEN
                UPDATE dlock_queue SET released = v_name WHERE name = p_queue;
            END IF;
            DELETE FROM dlock_node WHERE queue = p_queue AND name = v_name AND token = p_token AND session = p_session;
            IF ROW_COUNT() > 0 THEN
                SET v_status = 'ok';
            END IF;
        END IF;
        IF v_status = 'ok' THEN
            COMMIT AND NO CHAIN NO RELEASE;
        ELSE
            ROLLBACK AND NO CHAIN NO RELEASE;
        END IF;
        SELECT v_status;
    END;
END
//

-- Removes a node of any session, for an operator. Nodes of other programs may have no
-- token, which is 0 here.
CREATE PROCEDURE IF NOT EXISTS dlock_remove_any(IN p_session VARBINARY(64), IN p_generation BIGINT,
    IN p_queue VARBINARY(512), IN p_name VARBINARY(256), IN p_token BIGINT)
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_generation BIGINT;
    DECLARE v_status VARCHAR(8) CHARACTER SET ascii DEFAULT 'gone';
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
        SELECT generation INTO v_generation FROM dlock_session WHERE id = p_session AND era = @dlock_here LOCK IN SHARE MODE;
        IF v_generation IS NULL THEN
            SET v_status = 'unknown';
        ELSEIF p_generation < v_generation THEN
            SET v_status = 'stale';
        ELSE
            DELETE FROM dlock_node WHERE queue = p_queue AND name = p_name AND COALESCE(token, 0) = p_token;
            IF ROW_COUNT() > 0 THEN
                SET v_status = 'ok';
            END IF;
        END IF;
        COMMIT AND NO CHAIN NO RELEASE;
        SELECT v_status;
    END;
END
//

-- Keeps a value beside a queue if a node of a session is in the queue. A value of a
-- greater token stays.
CREATE PROCEDURE IF NOT EXISTS dlock_keep(IN p_session VARBINARY(64), IN p_generation BIGINT,
    IN p_queue VARBINARY(512), IN p_token BIGINT, IN p_value MEDIUMBLOB)
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_generation, v_found BIGINT;
    DECLARE v_status VARCHAR(8) CHARACTER SET ascii DEFAULT 'gone';
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
        SELECT generation INTO v_generation FROM dlock_session WHERE id = p_session AND era = @dlock_here LOCK IN SHARE MODE;
        IF v_generation IS NULL THEN
            SET v_status = 'unknown';
        ELSEIF p_generation < v_generation THEN
            SET v_status = 'stale';
        ELSE
            SELECT token INTO v_found FROM dlock_node WHERE queue = p_queue AND token = p_token AND session = p_session FOR UPDATE;
            IF v_found IS NOT NULL THEN
                INSERT INTO dlock_kept (queue, token, value) VALUES (p_queue, p_token, p_value)
                    ON DUPLICATE KEY UPDATE value = IF(token <= p_token, p_value, value), token = GREATEST(token, p_token);
                SELECT IF(token = p_token, 'ok', 'older') INTO v_status FROM dlock_kept WHERE queue = p_queue;
            END IF;
        END IF;
        COMMIT AND NO CHAIN NO RELEASE;
        SELECT v_status;
    END;
END
//

-- Returns the value of a queue, and its token or 0.
CREATE PROCEDURE IF NOT EXISTS dlock_kept(IN p_session VARBINARY(64), IN p_queue VARBINARY(512))
    READS SQL DATA SQL SECURITY INVOKER
BEGIN
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT s.id IS NOT NULL, COALESCE(k.token, 0), COALESCE(k.value, '')
        FROM (SELECT 1) x LEFT JOIN dlock_session s ON s.id = p_session AND s.era = @dlock_here LEFT JOIN dlock_kept k ON k.queue = p_queue;
    COMMIT AND NO CHAIN NO RELEASE;
END
//

-- Gives a node of a session another prefix.
CREATE PROCEDURE IF NOT EXISTS dlock_replace(IN p_session VARBINARY(64), IN p_generation BIGINT,
    IN p_queue VARBINARY(512), IN p_token BIGINT, IN p_prefix VARBINARY(224))
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_generation BIGINT;
    DECLARE v_name VARBINARY(256);
    DECLARE v_new VARBINARY(256) DEFAULT CONCAT(p_prefix, LPAD(p_token, GREATEST(10, LENGTH(p_token)), '0'));
    DECLARE v_status VARCHAR(8) CHARACTER SET ascii DEFAULT 'gone';
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
        SELECT generation INTO v_generation FROM dlock_session WHERE id = p_session AND era = @dlock_here LOCK IN SHARE MODE;
        IF v_generation IS NULL THEN
            SET v_status = 'unknown';
        ELSEIF p_generation < v_generation THEN
            SET v_status = 'stale';
        ELSE
            UPDATE dlock_queue SET last = last + 1 WHERE name = p_queue;
            SELECT name INTO v_name FROM dlock_node WHERE queue = p_queue AND token = p_token AND session = p_session FOR UPDATE;
        END IF;
        IF v_name IS NOT NULL THEN
            SET v_status = 'ok';
            IF v_name <> v_new THEN
                UPDATE dlock_node SET name = v_new WHERE queue = p_queue AND name = v_name;
            END IF;
        END IF;
        IF v_status = 'ok' THEN
            COMMIT AND NO CHAIN NO RELEASE;
        ELSE
            ROLLBACK AND NO CHAIN NO RELEASE;
        END IF;
        SELECT v_status;
    END;
END
//

-- Removes the node that an append without an answer may have added. Appends that run
-- end first. Appends with a lower generation that come later are refused.
CREATE PROCEDURE IF NOT EXISTS dlock_cancel(IN p_session VARBINARY(64), IN p_generation BIGINT, IN p_data LONGBLOB)
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_generation BIGINT;
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
        SELECT generation INTO v_generation FROM dlock_session WHERE id = p_session AND era = @dlock_here FOR UPDATE;
        IF v_generation IS NOT NULL THEN
            UPDATE dlock_session SET generation = GREATEST(generation, p_generation) WHERE id = p_session;
            DELETE FROM dlock_node WHERE session = p_session AND data = p_data;
        END IF;
        COMMIT AND NO CHAIN NO RELEASE;
        SELECT IF(v_generation IS NULL, 'unknown', 'ok');
    END;
END
//

-- Shows queues at one instant. The argument is a JSON array of their names in
-- hexadecimal digits. The first column says whether the session is known.
CREATE PROCEDURE IF NOT EXISTS dlock_look(IN p_session VARBINARY(64), IN p_queues LONGTEXT CHARACTER SET utf8mb4)
    READS SQL DATA SQL SECURITY INVOKER
BEGIN
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT s.id IS NOT NULL, UNHEX(j.queue), COALESCE(q.last, 0), q.released, n.name, IF(n.session = p_session, n.token, 0)
        FROM JSON_TABLE(p_queues, '$[*]' COLUMNS (queue VARCHAR(1024) CHARACTER SET ascii PATH '$')) j
        LEFT JOIN dlock_session s ON s.id = p_session AND s.era = @dlock_here
        LEFT JOIN dlock_queue q ON q.name = UNHEX(j.queue)
        LEFT JOIN dlock_node n ON n.queue = UNHEX(j.queue);
    COMMIT AND NO CHAIN NO RELEASE;
END
//

-- Waits for some milliseconds until a node ahead of a waiter has gone, and then shows the
-- queue like dlock_look, but no row if the session is unknown. Only the first waiter looks
-- for the node. Each of the others waits for a lock that the call of the one ahead holds.
-- Such a lock proves nothing. On MySQL, which rounds 20 ms to 0 s, nobody waits for it.
CREATE PROCEDURE IF NOT EXISTS dlock_await(IN p_session VARBINARY(64), IN p_queue VARBINARY(512), IN p_own VARBINARY(256), IN p_ahead VARBINARY(256))
    READS SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_own VARCHAR(64) CHARACTER SET ascii DEFAULT CONCAT('dlock/', MD5(CONCAT(DATABASE(), '/', p_queue, '/', p_own)));
    DECLARE v_ahead VARCHAR(64) CHARACTER SET ascii DEFAULT CONCAT('dlock/', MD5(CONCAT(DATABASE(), '/', p_queue, '/', p_ahead)));
    DECLARE v_left INT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; DO RELEASE_LOCK(v_own); RESIGNAL; END;
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    DO GET_LOCK(v_own, 0);
    IF GET_LOCK(v_ahead, 0.02) = 1 THEN
        DO RELEASE_LOCK(v_ahead);
        SET v_left = 30;
    END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    WHILE v_left > 0 DO -- EXISTS in place of INTO would wait for the row's lock
        SELECT IF(COUNT(*) = 0, 0, v_left - 1) INTO v_left FROM dlock_node WHERE queue = p_queue AND name = p_ahead;
        DO SLEEP(IF(v_left = 0, 0, 0.0003));
    END WHILE;
    COMMIT AND NO CHAIN NO RELEASE;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT TRUE, p_queue, COALESCE(q.last, 0), q.released, n.name, IF(n.session = p_session, n.token, 0)
        FROM dlock_session s LEFT JOIN dlock_queue q ON q.name = p_queue LEFT JOIN dlock_node n ON n.queue = p_queue
        WHERE s.id = p_session AND s.era = @dlock_here;
    COMMIT AND NO CHAIN NO RELEASE;
    DO RELEASE_LOCK(v_own);
END
//

-- Shows one node. The last column is the number of microseconds that its session has
-- left, or 0 if it has none.
CREATE PROCEDURE IF NOT EXISTS dlock_read(IN p_session VARBINARY(64), IN p_queue VARBINARY(512), IN p_name VARBINARY(256))
    READS SQL DATA SQL SECURITY INVOKER
BEGIN
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT s.id IS NOT NULL, n.name IS NOT NULL, COALESCE(n.token, 0), n.data, COALESCE(n.session, ''), COALESCE(n.created, 0),
            COALESCE(GREATEST(l.deadline, 0) - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 0)
        FROM (SELECT 1) x LEFT JOIN dlock_session s ON s.id = p_session AND s.era = @dlock_here
        LEFT JOIN dlock_node n ON n.queue = p_queue AND n.name = p_name
        LEFT JOIN dlock_lease l ON l.session = n.session;
    COMMIT AND NO CHAIN NO RELEASE;
END
//

-- Shows the names of the queues with nodes at a prefix and below it. The byte after the
-- slash is '0'.
CREATE PROCEDURE IF NOT EXISTS dlock_walk(IN p_session VARBINARY(64), IN p_prefix VARBINARY(512))
    READS SQL DATA SQL SECURITY INVOKER
BEGIN
    IF @dlock_here IS NULL THEN CALL dlock_here(); END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT DISTINCT s.id IS NOT NULL, n.queue
        FROM (SELECT 1) x LEFT JOIN dlock_session s ON s.id = p_session AND s.era = @dlock_here
        LEFT JOIN dlock_node n ON p_prefix = '' OR n.queue = p_prefix
            OR n.queue > CONCAT(p_prefix, '/') AND n.queue < CONCAT(p_prefix, '0');
    COMMIT AND NO CHAIN NO RELEASE;
END
//

-- Removes the rows of up to 100 queues that have no nodes and were not used since the
-- day before yesterday. The floor keeps their tokens from coming again. Returns whether
-- there may be more. Also ends a session whose lease somebody has deleted by hand, because
-- it has no deadline.
CREATE PROCEDURE IF NOT EXISTS dlock_tidy()
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_left INT DEFAULT 100;
    DECLARE v_today INT DEFAULT TO_DAYS(UTC_TIMESTAMP());
    DECLARE v_name VARBINARY(512) DEFAULT '';
    DECLARE v_last BIGINT;
    DECLARE v_dead VARBINARY(64);
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
        SELECT s.id INTO v_dead FROM dlock_session s LEFT JOIN dlock_lease l ON l.session = s.id WHERE l.session IS NULL LIMIT 1;
        DELETE FROM dlock_session WHERE id = v_dead;
        WHILE v_left > 0 AND v_name IS NOT NULL DO
            SET v_left = v_left - 1, v_name = NULL;
            SELECT q.name, q.last INTO v_name, v_last FROM dlock_queue q
                WHERE q.used < v_today - 1 AND NOT EXISTS (SELECT 1 FROM dlock_node n WHERE n.queue = q.name)
                LIMIT 1 FOR UPDATE SKIP LOCKED;
            IF v_name IS NOT NULL AND NOT EXISTS (SELECT 1 FROM dlock_node n WHERE n.queue = v_name) THEN
                UPDATE dlock_meta SET floor = GREATEST(floor, v_last) WHERE one = 1;
                DELETE FROM dlock_queue WHERE name = v_name;
            END IF;
        END WHILE;
        COMMIT AND NO CHAIN NO RELEASE;
        SELECT v_name IS NOT NULL;
    END;
END
//

-- Returns the version of the tables, or zero if the last of these statements has not
-- run.
CREATE PROCEDURE IF NOT EXISTS dlock_open()
    READS SQL DATA SQL SECURITY INVOKER
BEGIN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT COALESCE(MAX(version), 0) FROM dlock_meta;
    COMMIT AND NO CHAIN NO RELEASE;
END
//

-- This row says that all statements above have succeeded.
INSERT IGNORE INTO dlock_meta (one, version, floor) VALUES (1, VERSION_OF_THIS_FILE, 0)
//

DELIMITER ;
