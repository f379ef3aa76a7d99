package mysql

import (
	"testing"

	"github.com/dlock-go/dlock/internal/mistakes"
	"github.com/dlock-go/dlock/internal/mysqltest"
)

// The two steps of dlock_cancel.
const (
	raiseGeneration = "            UPDATE dlock_session SET generation = GREATEST(generation, p_generation) WHERE id = p_session;\n"
	removeOrphans   = "            DELETE FROM dlock_node WHERE session = p_session AND data = p_data;\n"
)

const look = "../internal/session/look.go"

var planted = []mistakes.Mistake{
	{"a change of a lower generation is taken", "schema.sql",
		"        ELSEIF p_generation < v_generation THEN\n            SET v_status = 'stale';\n        ELSE\n            UPDATE dlock_queue SET last = GREATEST",
		"        ELSE\n            UPDATE dlock_queue SET last = GREATEST",
		"TestLateChangeIsRefused"},
	{"clearing up does not raise the generation", "schema.sql",
		"SET generation = GREATEST(generation, p_generation)", "SET generation = generation",
		"TestLateChangeIsRefused"},
	{"clearing up does not wait for appends", "schema.sql",
		" FOR UPDATE;\n        IF v_generation IS NOT NULL THEN\n" + raiseGeneration + removeOrphans,
		";\n        IF v_generation IS NOT NULL THEN\n" + removeOrphans + raiseGeneration,
		"TestCancelWaitsForAppendsThatRun"},
	{"a row of a queue that is removed takes its tokens along", "schema.sql",
		"UPDATE dlock_meta SET floor = GREATEST(floor, v_last) WHERE one = 1;", "",
		"TestTokensRiseAlthoughTheClockFallsAndTheQueueWasRemoved"},
	{"a token is the clock alone", "schema.sql",
		"SET last = GREATEST(last + 1, v_now), used", "SET last = v_now, used",
		"TestTokensRiseAlthoughTheClockFallsAndTheQueueWasRemoved"},
	{"an append reads at the isolation level of its connection", "schema.sql",
		"        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n        SELECT v_status", "        SELECT v_status",
		"TestNoRequestSeesWhatIsNotCommitted"},
	{"a look reads at the isolation level of its connection", "schema.sql",
		"    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n    SELECT s.id IS NOT NULL, UNHEX", "    SELECT s.id IS NOT NULL, UNHEX",
		"TestNoRequestSeesWhatIsNotCommitted"},
	{"a node that is gone can be removed", "schema.sql",
		"        END WHILE;\n        IF v_status = 'ok' THEN",
		"        END WHILE;\n        SET v_status = IF(v_status = 'gone', 'ok', v_status);\n        IF v_status = 'ok' THEN",
		"TestConformance/rule07"},
	{"an error after the commit of an append is like one before it", "schema.sql",
		"RESIGNAL SET MYSQL_ERRNO = 1181;", "RESIGNAL;",
		"TestAppendWhoseListFailsLeavesNothing"},
	{"a removal takes a node that was renamed for gone", "schema.sql",
		"                SET v_name = NULL;\n                SELECT name INTO v_name FROM", "                SET v_name = NULL;\n                SELECT NULL INTO v_name FROM",
		"TestRemovalFindsANodeThatIsBeingRenamed"},
	{"every removal counts as a release", "store.go",
		"token, why == driver.Released)", "token, true)",
		"TestConformance/rule13/delete-is-not-released"},
	{"a look compares the last token alone", "store.go",
		"		fmt.Fprintln(h, n.Name)\n", "		_ = n\n",
		"TestChangeByHandIsNoticed"},
	{"a release is announced before the removals ahead of it", look,
		"			now := found[queue]\n", "			now := found[queue]\n			s.watches.Gone(queue, releasedSince(before[queue], now), driver.Released)\n",
		"TestReleasedDoesNotOvertakeTheRemovalOfTheOwnNode"},
	{"a release is remembered by the name of its node", look,
		"now.Released == \"\" || now.Released == before.Released", "now.Released == \"\"",
		"TestReleaseOfAnOlderNodeOfTheNameIsNotReleased"},
	{"a release is not announced", "schema.sql",
		"UPDATE dlock_queue SET released = v_name WHERE name = p_queue;", "SET v_name = v_name;",
		"TestReleasedIsSent"},
	{"the end of a session waits for its nodes", "schema.sql",
		"SELECT COUNT(*) INTO v_free FROM dlock_node WHERE session = v_dead FOR UPDATE SKIP LOCKED;",
		"SELECT COUNT(*) INTO v_free FROM dlock_node WHERE session = v_dead;",
		"TestDeadSessionWithALockedRowIsPassedOver"},
	{"a session with locked rows keeps the others", "schema.sql",
		"                SET v_passed = v_dead;\n", "                SET v_status = IF(v_status = 'ok', 'ok', 'none');\n",
		"TestDeadSessionWithALockedRowIsPassedOver"},
	{"a new server judges the deadlines of the old one", "schema.sql",
		"IF v_server <> v_here THEN", "IF FALSE THEN",
		"TestSessionsOutliveAChangeOfTheServer"},
	{"a restart does not count as a new server", "schema.sql",
		"IF v_server <> v_here THEN", "IF SUBSTRING_INDEX(v_server, '/', 1) <> @@GLOBAL.server_id THEN",
		"TestSessionsOutliveAChangeOfTheServer"},
	{"a new server keeps the deadlines of the old one", "schema.sql",
		"(l.deadline < v_now OR l.server <> v_here)", "l.deadline < v_now",
		"TestSessionsOutliveAChangeOfTheServer"},
	{"a heartbeat does not see deadlines of the old server", "schema.sql",
		"IF(MIN(server) = v_here AND MAX(server) = v_here, MIN(deadline), 0)", "IF(MIN(server) = v_here, MIN(deadline), 0)",
		"TestSessionsOutliveAChangeOfTheServer"},
	{"a heartbeat does not move the deadline", "schema.sql",
		"UPDATE dlock_lease SET deadline = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + v_timeout",
		"UPDATE dlock_lease SET deadline = deadline",
		"TestConformance/rule08/an-idle-session-lives-on"},
	{"the end of a reply is awaited without a limit", "store.go",
		"more = rows.NextResultSet()", "more = false",
		"TestReplyWithoutItsEnd"},
	{"a deadlock is an error", "store.go",
		"tries == maxTries || !slices.Contains(again, number(err)) || !pause(ctx, tries) {\n			return markError",
		"true {\n			return markError",
		"TestDeadlockIsRepeated"},
	{"the transaction of a killed procedure stays in the pool", "store.go",
		"		discard(conn)\n	}\n	return err", "	}\n	return err",
		"TestKilledAppendKeepsNoRows"},
	{"the server keeps a change that was given up", "pool.go",
		"config.Params = lockWaits(c.options.timeout)", "_ = lockWaits",
		"TestChangesThatWereGivenUpEndInTheServer"},
	{"an error after the commit counts as refused", "errors.go",
		"		if slices.Contains(unchanged, n) {", "		if true {",
		"TestAppendThatWasInterruptedLeavesNothing"},
}

func TestEachMistakeIsSeen(t *testing.T) { mistakes.Run(t, mysqltest.Require, planted) }
