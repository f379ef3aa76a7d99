package postgres

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/mistakes"
	"github.com/dlock-go/dlock/internal/pgtest"
)

var planted = []mistakes.Mistake{
	{"a removal by an operator does not compare the token", "schema.sql",
		"AND name = p_name AND token = p_token;", "AND name = p_name;",
		"TestConformance/remove/remove-spares-a-node-of-another-token"},
	{"a removal by an operator compares the token alone", "schema.sql",
		"AND name = p_name AND token = p_token;", "AND token = p_token;",
		"TestConformance/remove/remove-spares-a-node-of-another-name"},
	{"a change of a lower generation is taken", "schema.sql", " WHEN p_generation < present THEN 'stale'", "",
		"TestConformance/rule04/a-create-that-arrives-late-leaves-nothing"},
	{"clearing up does not raise the generation", "schema.sql", "SET generation = greatest(generation, p_generation)", "SET generation = generation",
		"TestConformance/rule04/a-create-that-arrives-late-leaves-nothing"},
	{"an unknown session may append", "schema.sql", "WHEN present IS NULL THEN 'unknown'", "WHEN present IS NULL THEN 'ok'",
		"TestConformance/rule09/a-create-that-arrives-after-close-leaves-nothing"},
	{"tokens start over in an empty database", "schema.sql", "own_token := nextval('dlock.counter');", "own_token := (SELECT coalesce(max(token), 0) + 1 FROM dlock.node);",
		"TestConformance/rule03/tokens-rise-when-the-queue-becomes-empty"},
	{"tokens are the clock", "schema.sql", "own_token := nextval('dlock.counter');", "own_token := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;",
		"TestAStepBackUnderLoad"},
	{"an append does not lock the queue", "schema.sql", "none := dlock.lock_queue(p_queue);\n    own_token", "own_token",
		"TestConformance/rule06/watch-of-a-queue-sees-a-creation"},
	{"a cancellation keeps heartbeats waiting", "schema.sql", "least(timeout / 8, current_setting('lock_timeout')::interval)", "current_setting('lock_timeout')::interval",
		"TestSessionOutlivesTheWaitForTheQueueOfAnOrphan"},
	{"a transaction waits for a row for as long as it takes", "schema.sql", "IF current_setting('lock_timeout') = '0' THEN", "IF false THEN",
		"TestDeadSessionEndsWhileItsAppendWaits"},
	{"a removal sends no notice", "schema.sql", "none := dlock.tell(p_queue, removed, p_why, proven);", "none := '';",
		"TestConformance/rule13/after-released-the-watch-goes-on"},
	{"every removal counts as a release", "schema.sql", "concat_ws(chr(10), p_why,", "concat_ws(chr(10), 'r',",
		"TestConformance/rule13/delete-is-not-released"},
	{"a node that is gone can be removed", "schema.sql", "status := 'gone';", "",
		"TestConformance/rule07/a-delete-after-an-operator-finds-the-node-gone"},
	{"a removal does not ask for the session of a node that is gone", "schema.sql",
		"        status := dlock.enter(p_session, p_generation);\n        IF status = 'ok'", "        IF status = 'ok'",
		"TestDeleteNoticesThatTheSessionHasEnded"},
	{"a removal takes all nodes of the session", "schema.sql", "DELETE FROM dlock.node WHERE token = p_token AND queue", "DELETE FROM dlock.node WHERE queue",
		"TestConformance/rule07/delete-removes-the-node-and-no-other"},
	{"a removal by hand sends no notice", "schema.sql", "PERFORM dlock.tell(OLD.queue, OLD.name, 'c', '');", "PERFORM 1;",
		"TestChangeByHandIsNoticed"},
	{"a session with locked rows keeps the others", "schema.sql", "EXCEPTION WHEN lock_not_available THEN\n                passed", "EXCEPTION WHEN division_by_zero THEN\n                passed",
		"TestDeadSessionWithALockedRowIsPassedOver"},
	{"a dead session takes no turn in a busy queue", "schema.sql", "FOR round IN 1..2 LOOP", "FOR round IN 1..1 LOOP",
		"TestDeadSessionInABusyQueueEnds"},
	{"a heartbeat does not move the deadline", "schema.sql", "SET deadline = clock_timestamp() + timeout, server = pg_postmaster_start_time()\n        WHERE id = p_session", "SET deadline = deadline WHERE id = p_session",
		"TestConformance/rule08/an-idle-session-lives-on"},
	{"a promoted standby goes on with the era", "schema.sql", "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)", "''",
		"TestNoTwoHoldersIfALaggingStandbyIsPromoted"},
	{"a restored dump goes on with the era", "schema.sql", "system_identifier || '.' || oid", "oid::text",
		"TestNoTwoHoldersIfADumpIsRestored"},
	{"a session of an earlier era makes a node", "schema.sql", "AND era = dlock.here() FOR KEY SHARE", "FOR KEY SHARE",
		"TestNoTwoHoldersIfALaggingStandbyIsPromoted"},
	{"the tokens of an era begin at the clock alone", "schema.sql", "(SELECT last_value + 1000000000 FROM dlock.counter)", "0",
		"TestNoTwoHoldersIfALaggingStandbyIsPromoted"},
	{"the tokens of an era go on from the counter alone", "schema.sql", "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint));\n            e.name", "0));\n            e.name",
		"TestNoTwoHoldersIfTheSchemaIsLost"},
	{"the grace ends at a time", "schema.sql", "least(clock_timestamp() - e.seen, longest / 4)", "clock_timestamp() - e.seen",
		"TestAClockStepDoesNotEndTheGrace"},
	{"an append does not wait for the disk", "schema.sql", "        none := dlock.flush();\n    END IF;\nEND $$;\n\n-- Removes a node of a session",
		"    END IF;\nEND $$;\n\n-- Removes a node of a session", "TestOthersDoNotWaitForTheDisk"},
	{"a removal does not wait for the disk", "schema.sql", "        none := dlock.flush();\n    END IF;\nEND $$;\n\n-- Removes a node of any",
		"    END IF;\nEND $$;\n\n-- Removes a node of any", "TestOthersDoNotWaitForTheDisk"},
	{"others wait until an append is on the disk", "schema.sql", "    IF names IS NOT NULL THEN\n        none := set_config('synchronous_commit', 'off', true);", "    IF names IS NOT NULL THEN",
		"TestOthersDoNotWaitForTheDisk"},
	{"others wait until a removal is on the disk", "schema.sql", "proven);\n        none := set_config('synchronous_commit', 'off', true);", "proven);",
		"TestOthersDoNotWaitForTheDisk"},
	{"an error after the commit counts as refused", "errors.go", "isError && !hasPrefix(server.Code, afterCommit)", "isError",
		"TestAnErrorAfterTheCommitLeavesNothing"},
	{"a version recurs after a crash", "schema.sql", " + (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint % 16777216", "",
		"TestNoVersionRecursAfterACrash"},
	{"heartbeats wait for no standby", "schema.sql", "'synchronous_commit', 'remote_write'", "'synchronous_commit', 'local'",
		"TestNoTwoHoldersIfAPrimaryIsIsolated"},
	{"functions keep the search_path of the user", "schema.sql", " := pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);\nBEGIN", ";\nBEGIN",
		"TestObjectsInTheSearchPathAreNotUsed"},
	{"a statement takes any operator", "store.go", `" OPERATOR(pg_catalog.$1) "`, `" $1 "`,
		"TestObjectsInTheSearchPathAreNotUsed"},
}

// caseTimeout returns the timeout of one conformance case. It is short if a
// mistake is planted in the driver, because many cases then time out.
func caseTimeout() time.Duration {
	if mistakes.Planted() {
		return 5 * time.Second
	}
	return 0
}

func TestEachMistakeIsSeen(t *testing.T) {
	mistakes.Run(t, pgtest.Require, append(planted, mistakes.Kit("TestConformance", mistakes.WithNotices, mistakes.OverNetworks)...))
}
