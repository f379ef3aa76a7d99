package cas_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/mistakes"
)

func TestEachMistakeIsSeen(t *testing.T) { mistakes.Run(t, func(testing.TB) {}, planted) }

var planted = []mistakes.Mistake{
	{"a change needs no living session", "store.go",
		"append(others, g.Entry)...", "others...", "TestASessionPurgedBeforeItsNodes"},
	{"a late create is not made to fail", "store.go",
		"if err := s.beat(ctx); err != nil {\n\t\treturn err", "if err := ctx.Err(); err != nil {\n\t\treturn err", "TestACreateWithoutAnAnswerLeavesNoNode"},
	{"a cancel trusts what the session knew before", "store.go",
		"if try == 0 && known {", "if false {", "TestACreateWithoutAnAnswerLeavesNoNode"},
	{"a conflict is not retried", "store.go",
		"if !errors.Is(err, ErrConflict) {\n\t\t\treturn now, err", "if true {\n\t\t\treturn now, err", "TestConflictsAreRetried"},
	{"a closed session leaves its nodes", "store.go",
		"return s.prune(ctx, s.graves(true))", "return nil", "TestCloseRemovesTheNodes"},
	{"a holder writes on a condition that it knows to be old", "store.go",
		"c.known && c.noticed <= c.revision", "c.known", "TestAHandOverCostsALook"},
	{"a session is over before its timeout", "expire.go",
		">= v.Timeout", ">= v.Timeout/2", "TestASessionEndsAfterItsTimeoutAndNoEarlier"},
	{"a heartbeat does not count", "expire.go",
		"!ok || n.revision != e.Revision", "!ok", "TestASessionEndsAfterItsTimeoutAndNoEarlier"},
	{"a waiter does not search for ended sessions", "store.go",
		"if s.meets() {", "if false {", "TestAWaiterPrunesASessionThatItKnew"},
	{"old data cost a living session its nodes", "store.go",
		"(g.Value != nil) != g.lives", "g.lives && g.Value == nil", "TestTheConditionOfAWriteDecides"},
	{"tokens fall after a restore", "queue.go",
		"max(revision, q.Last+1)", "revision", "TestTokensRise"},
	{"a release looks like any change", "notice.go",
		"case n.Name == now.Released:", "case false:", "TestAHandOverCostsALook"},
	{"a waiter ignores notices", "notice.go",
		"c.noticed <= c.revision || c.chased ||", "true ||", "TestAHandOverCostsALook"},
	{"tidying removes a queue in use", "expire.go",
		"before[e.Key] == e.Revision", "before != nil", "TestTidy"},
	{"tidying removes nodes", "expire.go",
		"len(q.Nodes) > 0 {", "len(q.Nodes) > 9 {", "TestTidy"},
}
