package sqlite

import (
	"testing"

	"github.com/dlock-go/dlock/internal/mistakes"
)

func TestEachMistakeIsSeen(t *testing.T) {
	mistakes.Run(t, func(testing.TB) {}, append([]mistakes.Mistake{
		{"a power cut takes tokens back", "schema.go",
			"SET last = reserved, reserved = reserved + ?", "SET reserved = reserved + ?",
			"TestAPowerCutBringsNoTokenBack"},
		{"no session knows that it is the first one", "presence_unix.go",
			"return how == syscall.LOCK_EX, err", "return false, err",
			"TestAPowerCutBringsNoTokenBack"},
		{"tokens are reserved without waiting for the disk", "conn.go",
			"err := d.exec(ctx, sqlDurable)", "err := d.exec(ctx, sqlUndurable)",
			"TestACommitThatReservesTokensWaitsForTheDisk"},
		{"a dead process keeps its session", "presence_unix.go",
			"return flock(f, syscall.LOCK_SH) == nil", "return false",
			"TestAKilledProcessLosesItsLockAtOnce/a_client_that_only_tries"},
		{"a missing file is taken for a death", "presence_unix.go",
			"if err != nil {\n\t\treturn false\n\t}\n\tdefer f.Close()", "if err != nil {\n\t\treturn true\n\t}\n\tdefer f.Close()",
			"TestAMissingFileIsNotADeath"},
		{"a node is deleted whatever session owns it", "schema.go",
			"DELETE FROM dlock_node WHERE queue = ? AND seq = ? AND session = ? RETURNING name",
			"DELETE FROM dlock_node WHERE queue = ? AND seq = ? AND ? <> '' RETURNING name",
			"TestConformance/rule07"},
		{"a removal by an operator does not compare the token", "schema.go",
			"AND iif(session IS NULL, 0, seq) = ?", "AND ? IS NOT NULL",
			"TestConformance/remove/remove-spares-a-node-of-another-token"},
		{"a removal by an operator compares no name", "schema.go",
			"WHERE queue = ? AND name = ? AND iif(", "WHERE queue = ? AND name <> ? || '-' AND iif(",
			"TestConformance/remove/remove-spares-a-node-of-another-name"},
		{"a read returns what is left of the session in another unit", "inspect.go",
			"time.Duration(*left)*time.Microsecond", "time.Duration(*left)",
			"TestConformance/read/read-tells-what-is-left-of-the-session"},
		{"a commit whose outcome is unknown is taken for a failure", "session.go",
			"case errors.Is(err, errUnknownOutcome):", "case false:",
			"TestConformance/rule04/a-reply-lost-leaves-nothing-and-takes-no-other-node"},
		{"a release is remembered by the name of its node", "schema.go",
			"AFTER INSERT ON dlock_node BEGIN\n  UPDATE dlock_store SET changes = changes + 1,\n    released = nullif(released, NEW.queue || '/' || NEW.name);",
			"AFTER INSERT ON dlock_node BEGIN\n  UPDATE dlock_store SET changes = changes + 1;",
			"TestAPutNodeForgetsTheReleaseOfItsName"},
		{"heartbeats wait behind all other transactions", "writers.go", "if u == urgent {", "if false {",
			"TestAHeartbeatGoesAheadOfTransactionsThatWait"},
		{"a value is set for a node of any session", "schema.go",
			"seq = ?2 AND session = ?4)", "seq = ?2 AND ?4 <> '')",
			"TestConformance/value/set-value-takes-own-nodes-only"},
		{"an older value overwrites a newer one", "schema.go",
			" WHERE token <= excluded.token`", "`",
			"TestConformance/value/an-older-contender-overwrites-nothing"},
		{"a poll misses the changes of its own session", "session.go", "		m.version = [2]int64{}\n", "",
			"TestAPollReadsOnlyWhatHasChanged"},
	}, mistakes.Kit("TestConformance")...))
}
