package sqlite

import "github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"

// schemaVersion is the supported value of dlock_store.schema.
var schemaVersion = sqlstore.Version(createSchema)

// createSchema runs in the transaction that found dlock_store missing.
const createSchema = `
CREATE TABLE dlock_store (
  id       INTEGER PRIMARY KEY CHECK (id = 1),
  schema   INTEGER NOT NULL,
  last     INTEGER NOT NULL,
  reserved INTEGER NOT NULL,
  changes  INTEGER NOT NULL,
  released TEXT
);
CREATE TABLE dlock_session (
  id       TEXT PRIMARY KEY,
  deadline INTEGER NOT NULL,
  boot     TEXT,
  until    INTEGER
) WITHOUT ROWID;
CREATE TABLE dlock_node (
  queue   TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  name    TEXT NOT NULL,
  session TEXT,
  blocker INTEGER,
  data    BLOB,
  created INTEGER,
  PRIMARY KEY (queue, seq, name)
) WITHOUT ROWID;
CREATE TABLE dlock_kept (
  queue TEXT PRIMARY KEY,
  token INTEGER NOT NULL,
  value BLOB NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER dlock_session_delete AFTER DELETE ON dlock_session BEGIN
  DELETE FROM dlock_node WHERE session = OLD.id;
END;
CREATE TRIGGER dlock_node_insert AFTER INSERT ON dlock_node BEGIN
  UPDATE dlock_store SET changes = changes + 1,
    released = nullif(released, NEW.queue || '/' || NEW.name);
END;
CREATE TRIGGER dlock_node_update AFTER UPDATE ON dlock_node BEGIN
  UPDATE dlock_store SET changes = changes + 1,
    released = nullif(released, NEW.queue || '/' || NEW.name);
END;
CREATE TRIGGER dlock_node_delete AFTER DELETE ON dlock_node BEGIN
  UPDATE dlock_store SET changes = changes + 1;
END;
`

// Each change is one transaction from sqlBegin to sqlCommit, as documented for
// other languages.
const (
	sqlBegin    = `BEGIN IMMEDIATE`
	sqlCommit   = `COMMIT`
	sqlRollback = `ROLLBACK`

	sqlHasSchema = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'dlock_store'`
	sqlSchema    = `SELECT schema FROM dlock_store`
	sqlNew       = `INSERT INTO dlock_store (id, schema, last, reserved, changes) VALUES (1, ?, 0, 0, 0)`

	sqlDurable   = `PRAGMA synchronous = FULL`
	sqlUndurable = `PRAGMA synchronous = NORMAL`
	sqlFlush     = `PRAGMA fullfsync = ON` // on macOS, fsync does not reach the disk
	sqlSkip      = `UPDATE dlock_store SET last = reserved, reserved = reserved + ?`
	sqlReserve   = `UPDATE dlock_store SET reserved = last + ? WHERE last >= reserved`

	// sqlLeft is a session's remaining time, by the boot clock unless the
	// machine has rebooted. byClock returns its arguments.
	sqlLeft = `iif(boot = ?1, until - ?2, deadline - ?3)`

	sqlSessions   = `SELECT id, ` + sqlLeft + ` FROM dlock_session WHERE id <> ?4`
	sqlAddSession = `INSERT INTO dlock_session (boot, until, deadline, id) VALUES (?1, ?2 + ?4, ?3 + ?4, ?5)`
	sqlBeat       = `UPDATE dlock_session SET boot = ?1, until = ?2 + ?4, deadline = ?3 + ?4 WHERE id = ?5`
	sqlEnd        = `DELETE FROM dlock_session WHERE id = ?`
	sqlAlive      = `SELECT count(*) FROM dlock_session WHERE id = ?`
	sqlExpire     = `DELETE FROM dlock_session WHERE ` + sqlLeft + ` <= 0 AND id <> ?4`

	sqlNumber = `UPDATE dlock_store SET last = last + 1
		WHERE last < reserved AND EXISTS (SELECT 1 FROM dlock_session WHERE id = ?)
		RETURNING last`
	sqlInsert = `INSERT INTO dlock_node (queue, seq, name, session, blocker, data, created)
		VALUES (?, ?, ?, ?, ?, ?, ?)`
	sqlDelete = `DELETE FROM dlock_node WHERE queue = ? AND seq = ? AND session = ? RETURNING name`
	sqlRemove = `DELETE FROM dlock_node WHERE queue = ? AND name = ? AND iif(session IS NULL, 0, seq) = ?
		RETURNING coalesce(session, '')`
	sqlReleased = `UPDATE dlock_store SET released = ?`
	sqlReplace  = `UPDATE dlock_node SET name = ? WHERE queue = ? AND seq = ? AND session = ?`
	sqlSetValue = `INSERT INTO dlock_kept (queue, token, value) SELECT ?1, ?2, ?3
		WHERE EXISTS (SELECT 1 FROM dlock_node WHERE queue = ?1 AND seq = ?2 AND session = ?4)
		ON CONFLICT (queue) DO UPDATE SET token = excluded.token, value = excluded.value WHERE token <= excluded.token`
	sqlOwn   = `SELECT name FROM dlock_node WHERE queue = ? AND seq = ? AND session = ?`
	sqlValue = `SELECT EXISTS (SELECT 1 FROM dlock_session WHERE id = ?), coalesce(k.token, 0), k.value
		FROM dlock_store s LEFT JOIN dlock_kept k ON k.queue = ?`
	sqlBlocked = `SELECT DISTINCT session FROM dlock_node
		WHERE queue = ?1 AND session IS NOT NULL AND (blocker = ?2 OR
		seq = (SELECT min(seq) FROM dlock_node WHERE queue = ?1 AND seq > ?2))`

	// sqlQueue reads a queue atomically. An empty queue yields one row without
	// a node.
	sqlQueue = `SELECT EXISTS (SELECT 1 FROM dlock_session WHERE id = ?),
		s.changes, s.released, n.seq, n.name, n.session
		FROM dlock_store s LEFT JOIN dlock_node n ON n.queue = ? ORDER BY n.seq, n.name`
	sqlChanges = `SELECT EXISTS (SELECT 1 FROM dlock_session WHERE id = ?), changes FROM dlock_store`

	sqlNode = `SELECT EXISTS (SELECT 1 FROM dlock_session WHERE id = ?4),
		n.seq, n.session, n.data, n.created,
		(SELECT ` + sqlLeft + ` FROM dlock_session WHERE id = n.session)
		FROM dlock_store s LEFT JOIN dlock_node n ON n.queue = ?5 AND n.name = ?6`
	sqlQueues = `SELECT EXISTS (SELECT 1 FROM dlock_session WHERE id = ?), n.queue
		FROM dlock_store s LEFT JOIN (SELECT DISTINCT queue FROM dlock_node) n`

	sqlDataVersion = `PRAGMA data_version`
)
