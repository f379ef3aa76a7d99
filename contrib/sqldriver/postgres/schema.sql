-- The tables and functions of dlock. A transaction that runs all of these
-- statements may be repeated, also while dlock is in use.

-- Functions, operators and types that others have put into a schema of the search_path
-- must not run. A body after RETURN keeps what it means here. Every other function that a
-- client calls first calls prepare, which sets the same search_path for its transaction.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE SCHEMA IF NOT EXISTS dlock;

-- The version of this file. A driver of another version refuses to work.
CREATE TABLE IF NOT EXISTS dlock.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);
INSERT INTO dlock.meta (version) VALUES (VERSION_OF_THIS_FILE) ON CONFLICT DO NOTHING;

-- Every node gets its sequence, which is also its fencing token, from this counter.
CREATE SEQUENCE IF NOT EXISTS dlock.counter;
CREATE SEQUENCE IF NOT EXISTS dlock.versions;

CREATE TABLE IF NOT EXISTS dlock.session (
    id text COLLATE "C" PRIMARY KEY,
    timeout interval NOT NULL,
    grace interval NOT NULL DEFAULT '0',   -- of the client; the longest counts for all
    deadline timestamptz NOT NULL,         -- after it, any session may end this one
    -- The start of the server whose clock the deadline is from. After a promotion or a
    -- restart the clock may be another one, so expire first renews the deadline.
    server timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    generation bigint NOT NULL DEFAULT 1,  -- changes with a lower generation are refused
    era text NOT NULL DEFAULT ''           -- in which the session has begun
) WITH (fillfactor = 50);

-- The era of the data. Data that are copied, restored or promoted may lack the latest
-- changes, so they begin another era, which ends all sessions: see begin_session.
CREATE TABLE IF NOT EXISTS dlock.era (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    name text NOT NULL DEFAULT '',         -- as here() returned it; empty before the first session
    grace interval NOT NULL DEFAULT '0',   -- while it runs
    next text NOT NULL DEFAULT '',         -- the era that begins after its grace
    rest interval NOT NULL DEFAULT '0',    -- what was left of the grace when it was seen last
    seen timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The cost of the functions below is mostly that of their queries. An assignment that calls
-- a function is no query, but PERFORM is: hence the variables named none.

-- The timeline. A standby has no current LSN, so that the call fails there.
CREATE OR REPLACE FUNCTION dlock.timeline() RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8);
EXCEPTION WHEN OTHERS THEN
    IF pg_catalog.pg_is_in_recovery() THEN
        RAISE;
    END IF;
    RAISE EXCEPTION 'dlock needs to know the timeline of the server: %', SQLERRM
        USING ERRCODE = 'feature_not_supported', HINT = 'Set wal_level to logical (on Amazon Aurora, rds.logical_replication to 1).';
END $$;

-- The name of the cluster, the database, and the timeline, which changes when a standby is
-- promoted or a backup is restored. A primary keeps its timeline until it stops.
CREATE OR REPLACE FUNCTION dlock.place() RETURNS text
LANGUAGE sql STABLE
RETURN (SELECT set_config('dlocks.place', system_identifier || '.' || oid || '.' || dlock.timeline(), false)
    FROM pg_control_system(), pg_database WHERE datname = current_database());

-- The name of the era of this server: its place and the table. A dump that is restored to
-- a new cluster may have the same OIDs as the old one. A connection asks for its place once.
CREATE OR REPLACE FUNCTION dlock.here() RETURNS text
LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('dlocks.place', true), ''), dlock.place()) || '.' || 'dlock.session'::regclass::oid;

-- A change of a queue locks its row first. A row without nodes may be removed.
CREATE TABLE IF NOT EXISTS dlock.queue (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,               -- new after every change of the nodes
    changed timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS dlock.node (
    token bigint PRIMARY KEY DEFAULT nextval('dlock.counter'),
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,        -- the prefix, and the token in ten digits or more
    session text COLLATE "C",              -- null if another program has added the node
    data bytea NOT NULL,
    created timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (queue, name)
);
CREATE INDEX IF NOT EXISTS node_session ON dlock.node (session);

-- The values that holders have kept beside queues. They outlive nodes and queues.
CREATE TABLE IF NOT EXISTS dlock.kept (
    queue text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL,                 -- of the node that kept the value
    value bytea NOT NULL
);

-- The version of a queue as Look returns it. After a crash, the server may draw a version
-- again that it has shown, so each start of the server has others.
CREATE OR REPLACE FUNCTION dlock.shown(p_version bigint) RETURNS bigint
LANGUAGE sql STABLE
RETURN p_version * 16777216 + (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint % 16777216;

-- The name of a node: its prefix and its token.
CREATE OR REPLACE FUNCTION dlock.node_name(p_prefix text, p_token bigint) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN p_prefix || CASE WHEN p_token < 10000000000 THEN lpad(p_token::text, 10, '0') ELSE p_token::text END;

-- The channel for notices of a queue. There are 256.
CREATE OR REPLACE FUNCTION dlock.channel(p_queue text) RETURNS text
LANGUAGE sql STABLE
RETURN 'dlock_' || substr(encode(sha256(convert_to(p_queue, 'UTF8')), 'hex'), 1, 2);

-- What a notice must show of a node that was released, because every user of the database
-- may send notices: nobody knows it who may not read the node.
CREATE OR REPLACE FUNCTION dlock.proof(p_data bytea) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN left(encode(sha256(p_data), 'hex'), 32);

-- Tells the sessions that listen that a node has gone, and why: 'r' if a holder has
-- released an exclusive lock, and 'c' otherwise. Notices arrive in the order of the
-- commits.
CREATE OR REPLACE FUNCTION dlock.tell(p_queue text, p_name text, p_why text, p_proof text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    none pg_catalog.text;
BEGIN
    IF length(p_queue) <= 512 AND length(p_name) <= 512 THEN
        none := pg_notify(dlock.channel(p_queue), concat_ws(chr(10), p_why, p_name, p_queue, p_proof));
    END IF;
END $$;

-- Locks a queue until the transaction ends, and gives it a new version.
CREATE OR REPLACE FUNCTION dlock.lock_queue(p_queue text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        UPDATE dlock.queue SET version = nextval('dlock.versions'), changed = clock_timestamp() WHERE name = p_queue;
        EXIT WHEN FOUND;
        INSERT INTO dlock.queue (name, version, changed) VALUES (p_queue, nextval('dlock.versions'), clock_timestamp())
            ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- Prepares the transaction for a change by one of the functions below.
CREATE OR REPLACE FUNCTION dlock.prepare() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    none pg_catalog.text := pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'dlock needs the isolation level read committed, not %', current_setting('transaction_isolation')
            USING ERRCODE = 'feature_not_supported',
            HINT = 'Set default_transaction_isolation of this user to read committed.';
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        none := set_config('synchronous_commit', 'on', true);
    END IF;
    IF current_setting('lock_timeout') = '0' THEN
        -- The server would not notice that the client of this transaction has died.
        none := set_config('lock_timeout', '2s', true);
    END IF;
    none := set_config('dlocks.call', '1', true);
END $$;

-- Checks that a session may make a change, and keeps the session until the
-- transaction ends. Heartbeats do not wait for this lock.
CREATE OR REPLACE FUNCTION dlock.enter(p_session text, p_generation bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    none pg_catalog.text := dlock.prepare();
    present bigint;
BEGIN
    SELECT generation INTO present FROM dlock.session WHERE id = p_session AND era = dlock.here() FOR KEY SHARE;
    RETURN CASE WHEN present IS NULL THEN 'unknown' WHEN p_generation < present THEN 'stale' ELSE 'ok' END;
END $$;

-- Removes the rows of up to 1000 queues that have no nodes and were not used for a day.
-- Returns whether there may be more.
CREATE OR REPLACE FUNCTION dlock.tidy() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    removed integer;
BEGIN
    PERFORM dlock.prepare();
    DELETE FROM dlock.queue WHERE name IN (
        SELECT name FROM dlock.queue q
        WHERE changed < clock_timestamp() - interval '1 day' AND NOT EXISTS (SELECT FROM dlock.node n WHERE n.queue = q.name)
        LIMIT 1000 FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed >= 1000;
END $$;

-- Lets the standbys that synchronous_standby_names names confirm the changes of this
-- transaction. If these are all standbys, a primary that was replaced renews no session.
CREATE OR REPLACE FUNCTION dlock.confirm() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dlock.prepare();
    IF current_setting('synchronous_commit') = 'local' THEN
        PERFORM set_config('synchronous_commit', 'remote_write', true);
    END IF;
END $$;

-- Begins a session, and returns 0. If the data are of another era, no session begins
-- before all leases of that one are over, that is, for the longest grace of any client.
-- Until then, returns the milliseconds to wait before the next attempt, and those that
-- are left in all. These are counted down at each attempt, and not stored as a time,
-- because a machine that has just started may get its clock set.
-- The tokens of an era begin at the clock, or above those that a standby may lack.
CREATE OR REPLACE FUNCTION dlock.begin_session(p_session text, p_timeout interval,
    p_grace interval DEFAULT NULL, p_empty_is_new boolean DEFAULT false)
RETURNS TABLE (wait bigint, rest bigint, era text, grace bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    e dlock.era;
    own interval;
    longest interval;
BEGIN
    PERFORM dlock.confirm();
    INSERT INTO dlock.era DEFAULT VALUES ON CONFLICT DO NOTHING;
    SELECT * INTO e FROM dlock.era FOR UPDATE;
    begin_session.era := dlock.here();
    own := greatest(p_grace, p_timeout);
    longest := greatest(own, e.grace, (SELECT max(s.grace) FROM dlock.session s));
    IF e.name <> begin_session.era THEN
        e.rest := CASE
            WHEN p_empty_is_new AND e.name || e.next = '' AND NOT EXISTS (SELECT FROM dlock.session) THEN '0'
            WHEN e.next = begin_session.era THEN
                e.rest + longest - e.grace - greatest(least(clock_timestamp() - e.seen, longest / 4), '0')
            ELSE longest END;
        IF e.rest <= '0' THEN
            DELETE FROM dlock.node WHERE session IS NOT NULL;
            DELETE FROM dlock.session;
            PERFORM setval('dlock.counter', greatest((SELECT last_value + 1000000000 FROM dlock.counter),
                (extract(epoch FROM clock_timestamp()) * 1000000)::bigint));
            e.name := begin_session.era;
        END IF;
        UPDATE dlock.era SET name = e.name, grace = CASE WHEN e.rest > '0' THEN longest ELSE '0' END,
            next = begin_session.era, rest = e.rest, seen = clock_timestamp();
    END IF;
    IF e.name <> begin_session.era THEN
        wait := greatest(ceil(extract(epoch FROM least(e.rest, longest / 5)) * 1000), 1);
        rest := ceil(extract(epoch FROM e.rest) * 1000);
    ELSE
        INSERT INTO dlock.session (id, timeout, grace, deadline, era)
            VALUES (p_session, p_timeout, own, clock_timestamp() + p_timeout, begin_session.era);
        wait := 0;
        rest := 0;
    END IF;
    grace := extract(epoch FROM longest) * 1000;
    RETURN NEXT;
END $$;

-- Moves the deadline of a session. Returns null if the session is unknown, -1 if that is
-- so because the data are of another era, so that no session begins before a grace, and
-- otherwise the milliseconds until expire has work: until the earliest deadline of any
-- session, or zero if that has passed or a deadline is of another server. A deadline may
-- be -infinity if an operator has set it.
CREATE OR REPLACE FUNCTION dlock.beat(p_session text) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dlock.confirm();
    UPDATE dlock.session SET deadline = clock_timestamp() + timeout, server = pg_postmaster_start_time()
        WHERE id = p_session AND era = dlock.here();
    IF NOT FOUND THEN
        RETURN (SELECT -1 FROM dlock.era WHERE name NOT IN ('', dlock.here()));
    END IF;
    RETURN (SELECT ceil(extract(epoch FROM greatest(min(CASE WHEN server = pg_postmaster_start_time() THEN deadline ELSE '-infinity' END),
        clock_timestamp()) - clock_timestamp()) * 1000) FROM dlock.session);
END $$;

-- Waits until the changes of this connection are on the disk, and on the standbys that
-- have to confirm them. A change of a queue in which others wait is committed without
-- that wait, so that they go on meanwhile. Its own session waits here before it learns of
-- the change.
CREATE OR REPLACE FUNCTION dlock.flush() RETURNS text
LANGUAGE sql
RETURN concat(CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END,
    pg_logical_emit_message(true, 'dlock', '')); -- a commit without changes would not wait

-- Appends a node. The counter is drawn, and the nodes are read, after the queue was
-- locked. So the order of the tokens is the order of the commits. The status is 'ok',
-- 'unknown' or 'stale'. The names are those of the nodes ahead, with their proofs, or null.
CREATE OR REPLACE PROCEDURE dlock.append(p_session text, p_generation bigint, p_queue text, p_prefix text, p_data bytea,
    INOUT status text, INOUT own_token bigint, INOUT own_created bigint, INOUT names json)
LANGUAGE plpgsql AS $$
DECLARE
    none pg_catalog.text;
BEGIN
    status := dlock.enter(p_session, p_generation);
    IF status <> 'ok' THEN
        RETURN;
    END IF;
    none := dlock.lock_queue(p_queue);
    own_token := nextval('dlock.counter');
    INSERT INTO dlock.node (token, queue, name, session, data)
        VALUES (own_token, p_queue, dlock.node_name(p_prefix, own_token), p_session, p_data)
        RETURNING (extract(epoch FROM created) * 1000000)::bigint, (SELECT json_agg(json_build_array(n.name, dlock.proof(n.data))) FROM dlock.node n WHERE n.queue = p_queue)
        INTO own_created, names;
    IF names IS NOT NULL THEN
        none := set_config('synchronous_commit', 'off', true);
        COMMIT;
        none := dlock.flush();
    END IF;
END $$;

-- Removes a node of a session, which need not be locked: whatever ends the session locks
-- the queue, and finds the node or not. If no node is left in the queue, no session is
-- told.
CREATE OR REPLACE PROCEDURE dlock.remove(p_session text, p_generation bigint, p_queue text, p_token bigint, p_why text,
    INOUT status text)
LANGUAGE plpgsql AS $$
DECLARE
    removed pg_catalog.text;
    proven pg_catalog.text;                -- null unless others are in the queue
    none pg_catalog.text := dlock.prepare();
BEGIN
    none := dlock.lock_queue(p_queue);
    DELETE FROM dlock.node WHERE token = p_token AND queue = p_queue AND session = p_session
        RETURNING name, CASE WHEN EXISTS (SELECT FROM dlock.node n WHERE n.queue = p_queue AND n.token <> p_token) THEN dlock.proof(data) END
        INTO removed, proven;
    status := 'ok';
    IF NOT FOUND THEN
        ROLLBACK; -- because a session is locked before a queue
        status := dlock.enter(p_session, p_generation);
        IF status = 'ok' THEN
            status := 'gone';
        END IF;
    ELSIF proven IS NOT NULL THEN
        none := dlock.tell(p_queue, removed, p_why, proven);
        none := set_config('synchronous_commit', 'off', true);
        COMMIT;
        none := dlock.flush();
    END IF;
END $$;

-- Removes a node of any session, for an operator.
CREATE OR REPLACE FUNCTION dlock.remove_any(p_session text, p_generation bigint, p_queue text, p_name text, p_token bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    status pg_catalog.text := dlock.enter(p_session, p_generation);
BEGIN
    IF status <> 'ok' THEN
        RETURN status;
    END IF;
    PERFORM dlock.lock_queue(p_queue);
    DELETE FROM dlock.node WHERE queue = p_queue AND name = p_name AND token = p_token;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    PERFORM dlock.tell(p_queue, p_name, 'c', '');
    RETURN 'ok';
END $$;

-- Gives a node of a session another prefix.
CREATE OR REPLACE FUNCTION dlock.replace(p_session text, p_generation bigint, p_queue text, p_token bigint, p_prefix text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    status pg_catalog.text := dlock.enter(p_session, p_generation);
    old pg_catalog.text;
BEGIN
    IF status <> 'ok' THEN
        RETURN status;
    END IF;
    PERFORM dlock.lock_queue(p_queue);
    SELECT name INTO old FROM dlock.node WHERE token = p_token AND queue = p_queue AND session = p_session FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    IF old <> dlock.node_name(p_prefix, p_token) THEN
        UPDATE dlock.node SET name = dlock.node_name(p_prefix, p_token) WHERE token = p_token;
        PERFORM dlock.tell(p_queue, old, 'c', '');
    END IF;
    RETURN 'ok';
END $$;

-- Keeps a value beside a queue if a node of a session is in the queue. A value of a
-- greater token stays.
CREATE OR REPLACE FUNCTION dlock.keep(p_session text, p_generation bigint, p_queue text, p_token bigint, p_value bytea)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    status pg_catalog.text := dlock.enter(p_session, p_generation);
BEGIN
    IF status <> 'ok' THEN
        RETURN status;
    END IF;
    PERFORM FROM dlock.node WHERE token = p_token AND queue = p_queue AND session = p_session FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    INSERT INTO dlock.kept AS k (queue, token, value) VALUES (p_queue, p_token, p_value)
        ON CONFLICT (queue) DO UPDATE SET token = excluded.token, value = excluded.value WHERE k.token <= excluded.token;
    RETURN CASE WHEN FOUND THEN 'ok' ELSE 'older' END;
END $$;

-- Removes the nodes that appends without an answer may have added. Appends that run
-- end first. Appends with a lower generation that come later are refused. Heartbeats
-- wait for the row of the session from then on, so a queue that stays locked for
-- longer than an eighth of the session timeout is an error, and the caller tries
-- again.
CREATE OR REPLACE FUNCTION dlock.cancel(p_session text, p_generation bigint, p_data bytea[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    orphan pg_catalog.record;
    patience interval;
BEGIN
    PERFORM dlock.prepare();
    SELECT least(timeout / 8, current_setting('lock_timeout')::interval) INTO patience
        FROM dlock.session WHERE id = p_session AND era = dlock.here() FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    PERFORM set_config('lock_timeout', greatest(ceil(extract(epoch FROM patience) * 1000), 1)::text, true);
    UPDATE dlock.session SET generation = greatest(generation, p_generation) WHERE id = p_session;
    FOR orphan IN SELECT token, queue, name FROM dlock.node WHERE session = p_session AND data = ANY (p_data) ORDER BY queue LOOP
        PERFORM dlock.lock_queue(orphan.queue);
        DELETE FROM dlock.node WHERE token = orphan.token;
        PERFORM dlock.tell(orphan.queue, orphan.name, 'c', '');
    END LOOP;
    RETURN 'ok';
END $$;

-- Removes a session and its nodes. The caller has locked the row of the session, so no
-- append of this session runs.
CREATE OR REPLACE FUNCTION dlock.drop_session(p_session text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    locked pg_catalog.text;
    removed pg_catalog.text;
BEGIN
    FOR locked IN SELECT DISTINCT queue FROM dlock.node WHERE session = p_session ORDER BY queue LOOP
        PERFORM dlock.lock_queue(locked);
        FOR removed IN DELETE FROM dlock.node WHERE queue = locked AND session = p_session RETURNING name LOOP
            PERFORM dlock.tell(locked, removed, 'c', '');
        END LOOP;
    END LOOP;
    DELETE FROM dlock.session WHERE id = p_session;
END $$;

-- Ends a session at its own request.
CREATE OR REPLACE FUNCTION dlock.end_session(p_session text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dlock.prepare();
    PERFORM FROM dlock.session WHERE id = p_session FOR UPDATE;
    IF FOUND THEN
        PERFORM dlock.drop_session(p_session);
    END IF;
END $$;

-- Ends one session whose deadline has passed, and returns whether it has ended one. If
-- another transaction has locked the session or a node of it, that is left to a later
-- call. The row of a busy queue is different, because changes lock it all the time. So
-- the second round waits for the rows of queues, for half a second in all. A session
-- whose deadline is of another server gets its full timeout first.
CREATE OR REPLACE FUNCTION dlock.expire() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    dead pg_catalog.record;
    passed integer := 0;
BEGIN
    PERFORM dlock.prepare();
    FOR round IN 1..2 LOOP
        PERFORM set_config('lock_timeout', CASE round WHEN 1 THEN 1 ELSE greatest(500 / passed, 1) END || 'ms', true);
        SELECT '' AS id, '-infinity'::timestamptz AS deadline INTO dead;
        LOOP
            SELECT id, deadline, server INTO dead FROM dlock.session
                WHERE (deadline < clock_timestamp() OR server <> pg_postmaster_start_time()) AND (deadline, id) > (dead.deadline, dead.id)
                ORDER BY deadline, id LIMIT 1 FOR UPDATE SKIP LOCKED;
            EXIT WHEN NOT FOUND;
            IF dead.server <> pg_postmaster_start_time() THEN
                UPDATE dlock.session SET deadline = clock_timestamp() + timeout, server = pg_postmaster_start_time() WHERE id = dead.id;
                CONTINUE;
            END IF;
            BEGIN
                PERFORM FROM dlock.node WHERE session = dead.id FOR UPDATE NOWAIT;
                PERFORM dlock.drop_session(dead.id);
                RETURN true;
            EXCEPTION WHEN lock_not_available THEN
                passed := passed + 1; -- nothing of this session has changed
            END;
        END LOOP;
        EXIT WHEN passed = 0;
    END LOOP;
    RETURN false;
END $$;

-- Tells the sessions of changes that were made by hand, and removes the nodes of a session
-- that was deleted. A TRUNCATE deletes the rows first, so that this runs for each of them.
-- Changes by the functions above are skipped here, not by a WHEN of the trigger, which the
-- server would parse for each change.
CREATE OR REPLACE FUNCTION dlock.changed_by_hand() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    path pg_catalog.text;
    none pg_catalog.text;
BEGIN
    IF pg_catalog.current_setting('dlocks.call', true) OPERATOR(pg_catalog.=) '1' THEN
        RETURN NULL;
    END IF;
    path := pg_catalog.current_setting('search_path');
    none := pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    IF TG_OP = 'TRUNCATE' THEN
        EXECUTE format('DELETE FROM %I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME);
    ELSIF TG_TABLE_NAME = 'session' THEN
        PERFORM dlock.drop_session(OLD.id);
    ELSE
        IF TG_OP <> 'INSERT' THEN
            PERFORM dlock.lock_queue(OLD.queue);
            PERFORM dlock.tell(OLD.queue, OLD.name, 'c', '');
        END IF;
        IF TG_OP <> 'DELETE' THEN
            PERFORM dlock.lock_queue(NEW.queue);
        END IF;
    END IF;
    none := pg_catalog.set_config('search_path', path, true);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER changed_by_hand AFTER INSERT OR UPDATE OR DELETE ON dlock.node
    FOR EACH ROW EXECUTE FUNCTION dlock.changed_by_hand();
CREATE OR REPLACE TRIGGER changed_by_hand AFTER DELETE ON dlock.session
    FOR EACH ROW EXECUTE FUNCTION dlock.changed_by_hand();
CREATE OR REPLACE TRIGGER truncated_by_hand BEFORE TRUNCATE ON dlock.node
    FOR EACH STATEMENT EXECUTE FUNCTION dlock.changed_by_hand();
CREATE OR REPLACE TRIGGER truncated_by_hand BEFORE TRUNCATE ON dlock.session
    FOR EACH STATEMENT EXECUTE FUNCTION dlock.changed_by_hand();
