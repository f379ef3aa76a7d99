package cas_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/mistakes"
)

func TestEachMistakeIsSeen(t *testing.T) { mistakes.Run(t, func(testing.TB) {}, planted) }

var planted = []mistakes.Mistake{
	{"a change needs no living session", "store.go",
		"s.write(ctx, e, guard)", "s.write(ctx, e)", "TestASessionPurgedBeforeItsNodes"},
	{"a late create is not made to fail", "store.go",
		"if err := s.sign(ctx, false); err != nil {", "if err := ctx.Err(); err != nil {", "TestACreateWithoutAnAnswerLeavesNoNode"},
	{"a node of a create without an answer outlives the session", "store.go",
		"if err != nil {\n\t\treturn r, err", "	if err != nil {\n\t\tdelete(s.open, c.Number)\n\t\treturn r, err", "TestCloseRemovesTheNodes"},
	{"an error that an old queue has caused counts", "store.go",
		"case err != nil && try > 0:", "case err != nil:", "TestAnOldQueue"},
	{"a conflict is not retried", "store.go",
		"if !errors.Is(err, ErrConflict) {", "if !errors.Is(err, ErrConflict) || true {", "TestConflictsAreRetried"},
	{"a conflict with a heartbeat is not seen", "store.go",
		"e.Revision == sent) // then", "e.Revision == sent && false) // then", "TestASessionPurgedBeforeItsNodes"},
	{"a closed session leaves its nodes", "store.go",
		"maps.Values(s.open)", "maps.Values(map[int64]string{})", "TestCloseRemovesTheNodes"},
	{"a closed session visits queues that it has left", "store.go",
		"delete(s.open, n.Number)", "", "TestCloseAfterTheLocks"},
	{"a holder writes on a condition that it knows to be old", "store.go",
		"c.known = false", "c.known = true", "TestAHandOverCostsALook"},
	{"a session is over before its timeout", "store.go",
		">= max(v.Timeout, d)", ">= max(v.Timeout/2, d)", "TestASessionEndsAfterItsTimeoutAndNoEarlier"},
	{"a heartbeat does not count", "store.go",
		"if c.Revision != e.Revision {", "if c.Revision == 0 {", "TestASessionEndsAfterItsTimeoutAndNoEarlier"},
	{"a waiter does not search for ended sessions", "store.go",
		"return 0, s.sign(ctx, false)", "return time.Hour, s.sign(ctx, false)", "TestAWaiterPrunesASessionThatItKnew"},
	{"old data cost a living session its nodes", "store.go",
		"(guard.Value != nil) != lives", "lives && guard.Value == nil", "TestTheConditionOfAWriteDecides"},
	{"tokens fall after a restore", "store.go",
		"max(e.Revision, q.Last+1)", "e.Revision", "TestTokensRise"},
	{"a release looks like any change", "../queue.go",
		"Released: q.Released, ", "", "TestAHandOverCostsALook"},
	{"a waiter ignores notices", "store.go",
		"n.host.Noticed(name, q.snapshot())", "_, _ = name, q", "TestAHandOverCostsALook"},
	{"a change makes the session's own waiters look", "store.go",
		"r.Snapshot, r.Place = q.snapshot(), n.Place()", "r.Nodes, r.Place = q.snapshot().Nodes, n.Place()", "TestAHandOverInASession"},
	{"an answer that shows the queue tells no watch", "../session.go",
		"err == nil && r.Version != 0 && s", "err != nil && r.Version != 0 && s", "TestAHandOverInASession"},
	{"tidying removes a queue in use", "store.go",
		"s.over(e, tidyAfter)", "s.over(e, 0)", "TestTidy"},
	{"tidying removes nodes", "store.go",
		"len(q.Nodes) == 0 && q.Setter", "q.Setter", "TestTidy"},
	{"tidying removes values", "store.go",
		"&& q.Setter == 0 ", "", "TestTidy"},
	{"tidying removes living sessions", "store.go",
		"max(v.Timeout, d)", "cmp.Or(d, v.Timeout)", "TestTidy"},
}
