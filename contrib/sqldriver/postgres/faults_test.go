package postgres

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/pgtest"
)

var sabotage = flag.Bool("sabotage", false, "put each mistake in and see that its test fails")

// faultVariable is an environment variable. If its value is the name of a mistake, this
// test binary makes that mistake in the functions of the driver.
const faultVariable = "DLOCK_POSTGRES_FAULT"

// A mistake replaces the text old of schema.sql by the text new. With the mistake, the
// tests that the pattern test selects (for -test.run) have to fail.
type mistake struct {
	name, old, new, test string
}

var mistakes = []mistake{
	{"a change of a lower generation is taken", " WHEN p_generation < present THEN 'stale'", "",
		"TestLateChangeIsRefused"},
	{"clearing up does not raise the generation", "SET generation = greatest(generation, p_generation)", "SET generation = generation",
		"TestLateChangeIsRefused"},
	{"an unknown session may append", "WHEN present IS NULL THEN 'unknown'", "WHEN present IS NULL THEN 'ok'",
		"TestConformance/rule09/a-create-that-arrives-after-close-leaves-nothing"},
	{"tokens start over in an empty database", "drawn := nextval('dlock.counter');", "drawn := (SELECT coalesce(max(token), 0) + 1 FROM dlock.node);",
		"TestConformance/rule03/tokens-rise-when-the-queue-becomes-empty"},
	{"tokens are the clock", "drawn := nextval('dlock.counter');", "drawn := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;",
		"TestAStepBackUnderLoad"},
	{"an append does not lock the queue", "PERFORM dlock.lock_queue(p_queue);\n    drawn", "drawn",
		"TestConformance/rule06/watch-of-a-queue-sees-a-creation"},
	{"a cancellation keeps heartbeats waiting", "least(timeout / 8, current_setting('lock_timeout')::interval)", "current_setting('lock_timeout')::interval",
		"TestSessionOutlivesTheWaitForTheQueueOfAnOrphan"},
	{"a transaction waits for a row for as long as it takes", "IF current_setting('lock_timeout') = '0' THEN", "IF false THEN",
		"TestDeadSessionEndsWhileItsAppendWaits"},
	{"a removal sends no notice", "PERFORM dlock.tell(p_queue, removed, p_why);", "PERFORM 1;",
		"TestConformance/rule13/after-released-the-watch-goes-on"},
	{"every removal counts as a release", "p_why || chr(10)", "'r' || chr(10)",
		"TestConformance/rule13/delete-is-not-released"},
	{"a node that is gone can be removed", "RETURN 'gone';", "RETURN 'ok';",
		"TestConformance/rule07/a-delete-after-an-operator-finds-the-node-gone"},
	{"a removal takes all nodes of the session", "DELETE FROM dlock.node WHERE token = p_token AND queue", "DELETE FROM dlock.node WHERE queue",
		"TestConformance/rule07/delete-removes-the-node-and-no-other"},
	{"a removal by hand sends no notice", "PERFORM dlock.tell(OLD.queue, OLD.name, 'c');", "PERFORM 1;",
		"TestChangeByHandIsNoticed"},
	{"a session with locked rows keeps the others", "EXCEPTION WHEN lock_not_available THEN", "EXCEPTION WHEN division_by_zero THEN",
		"TestDeadSessionWithALockedRowIsPassedOver"},
	{"a dead session takes no turn in a busy queue", "FOR round IN 1..2 LOOP", "FOR round IN 1..1 LOOP",
		"TestDeadSessionInABusyQueueEnds"},
	{"a heartbeat does not move the deadline", "SET deadline = clock_timestamp() + timeout", "SET deadline = deadline",
		"TestConformance/rule08/an-idle-session-lives-on"},
}

// putFault puts the fault that the environment names into schema.sql.
func putFault() {
	for _, f := range mistakes {
		if f.name == os.Getenv(faultVariable) {
			schemaSQL = strings.Replace(schemaSQL, f.old, f.new, 1)
		}
	}
}

// caseTimeout returns the time limit of the kit. It is short in a run that has to fail,
// because many cases fail at their limit.
func caseTimeout() time.Duration {
	if os.Getenv(faultVariable) != "" {
		return 5 * time.Second
	}
	return 0
}

// TestEachMistakeIsSeen checks that each mistake can be put in. With -sabotage it
// runs this test binary once for each mistake. The test of the mistake has to fail.
func TestEachMistakeIsSeen(t *testing.T) {
	if os.Getenv(faultVariable) != "" {
		t.Skip("this process has a mistake already")
	}
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			if strings.Count(schemaSQL, m.old) == 0 {
				t.Fatalf("schema.sql does not contain %q", m.old)
			}
			if *sabotage {
				pgtest.Require(t)
				seeItFail(t, m)
			}
		})
	}
}

func seeItFail(t *testing.T, m mistake) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.failfast", "-test.run=^"+strings.ReplaceAll(m.test, "/", "$/^")+"$")
	cmd.Env = append(os.Environ(), faultVariable+"="+m.name)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%s passes with the mistake:\n%s", m.test, out)
	} else if !strings.Contains(string(out), "--- FAIL: "+strings.Split(m.test, "/")[0]) {
		t.Errorf("%s did not run: %v\n%s", m.test, err, out)
	}
}
