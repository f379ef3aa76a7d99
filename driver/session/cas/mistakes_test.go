package cas_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/mistakes"
)

func TestEachMistakeIsSeen(t *testing.T) { mistakes.Run(t, func(testing.TB) {}, planted) }

var planted = []mistakes.Mistake{
	{"a change needs no living session", "queue.go",
		"s.write(ctx, e, g)", "s.write(ctx, e)", "TestASessionPurgedBeforeItsNodes"},
	{"a late create is not made to fail", "store.go",
		"if err := s.sign(ctx, false); err != nil {", "if err := ctx.Err(); err != nil {", "TestACreateWithoutAnAnswerLeavesNoNode"},
	{"a node of a create without an answer outlives the session", "store.go",
		"cache.doubt || c.Kind == session.Create", "cache.doubt", "TestCloseRemovesTheNodes"},
	{"an error that an old queue has caused counts", "queue.go",
		"case err != nil && try > 0:", "case err != nil:", "TestAnOldQueue"},
	{"a conflict is not retried", "queue.go",
		"if !errors.Is(err, ErrConflict) {", "if !errors.Is(err, ErrConflict) || true {", "TestConflictsAreRetried"},
	{"a conflict with a heartbeat is not seen", "queue.go",
		"e.Revision == sent) // then", "e.Revision == sent && false) // then", "TestASessionPurgedBeforeItsNodes"},
	{"an answer that comes late hides a node", "queue.go",
		"if c.Revision != before && c.Revision > e.Revision {", "if false {", "TestAnOldQueue"},
	{"a closed session leaves its nodes", "store.go",
		"return s.prune(ctx, true)", "return nil", "TestCloseRemovesTheNodes"},
	{"a holder writes on a condition that it knows to be old", "store.go",
		"c.known = false", "c.known = true", "TestAHandOverCostsALook"},
	{"a session is over before its timeout", "store.go",
		">= v.Timeout", ">= v.Timeout/2", "TestASessionEndsAfterItsTimeoutAndNoEarlier"},
	{"a heartbeat does not count", "queue.go",
		"if c.Revision != e.Revision {", "if c.Revision == 0 {", "TestASessionEndsAfterItsTimeoutAndNoEarlier"},
	{"a waiter does not search for ended sessions", "store.go",
		"return 0, s.sign(ctx, false)", "return time.Hour, s.sign(ctx, false)", "TestAWaiterPrunesASessionThatItKnew"},
	{"old data cost a living session its nodes", "queue.go",
		"(g.Value != nil) != lives", "lives && g.Value == nil", "TestTheConditionOfAWriteDecides"},
	{"tokens fall after a restore", "queue.go",
		"max(e.Revision, q.Last+1)", "e.Revision", "TestTokensRise"},
	{"a release looks like any change", "queue.go",
		"Released: q.Released", "", "TestAHandOverCostsALook"},
	{"a waiter ignores notices", "store.go",
		"n.host.Noticed(name, q.snapshot())", "_, _ = name, q", "TestAHandOverCostsALook"},
	{"a change makes the session's own waiters look", "store.go",
		"r.Nodes, r.Version = now.Nodes, now.Version", "r.Nodes = now.Nodes", "TestAHandOverInASession"},
	{"an answer that shows the queue tells no watch", "../session.go",
		"err == nil && r.Version != 0 && s", "err != nil && r.Version != 0 && s", "TestAHandOverInASession"},
	{"tidying removes a queue in use", "store.go",
		"before[e.Key] == e.Revision &&", "", "TestTidy"},
	{"tidying removes nodes", "store.go",
		"len(q.Nodes) > 0 ||", "", "TestTidy"},
	{"tidying removes values", "store.go",
		"|| q.Value != nil", "", "TestTidy"},
	{"tidying removes living sessions", "store.go",
		"&& over(e, since)", "&& !since.IsZero()", "TestTidy"},
}
