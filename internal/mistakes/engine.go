package mistakes

import (
	"path/filepath"
	"runtime"
)

// Engine returns mistakes in package driver/session, each with the test of that
// package that sees it. If kit is not empty, Engine returns only those that a
// conformance kit sees, with kit as the test: notices says whether the driver
// has notices.
func Engine(kit string, notices bool) (all []Mistake) {
	_, here, _, _ := runtime.Caller(0)
	for _, m := range engine {
		if kit != "" {
			if m.seen == byUnit || m.seen == byNotices && !notices {
				continue
			}
			m.Mistake[4] = kit
		}
		m.Mistake[1] = filepath.Join(filepath.Dir(here), "../../driver", m.Mistake[1])
		all = append(all, m.Mistake)
	}
	return all
}

type seen int

const (
	byUnit    seen = iota // only by a test of the package itself
	byEach                // by each driver's kit
	byNotices             // by the kit of a driver with notices
)

var engine = []struct {
	seen
	Mistake
}{
	{byEach, Mistake{"a call does not return when its ctx ends", "session/session.go",
		"if ctx.Done() == nil {", "if true {", "TestACallerThatLeavesInterruptsNoRequest"}},
	{byEach, Mistake{"the node of a caller that has left stays", "session/create.go",
		"if err == nil {\n\t\t\ts.removeLate(", "if false {\n\t\t\ts.removeLate(", "TestTheNodeOfACallerThatHasLeft"}},
	{byEach, Mistake{"a create without an answer is not cancelled", "session/create.go",
		"if unknownOutcome(err) {\n\t\t\ts.orphan(c)", "if false {\n\t\t\ts.orphan(c)", "TestLostRepliesAreCleanedUpTogether"}},
	{byUnit, Mistake{"lost replies are cleaned up one by one", "session/create.go",
		"cancelsAtOnce = 100", "cancelsAtOnce = 1", "TestLostRepliesAreCleanedUpTogether"}},
	{byEach, Mistake{"the data of a create are kept", "session/create.go",
		"bytes.Clone(n.Data)", "bytes.TrimSpace(n.Data)", "TestLostRepliesAreCleanedUpTogether"}},
	{byEach, Mistake{"a repeated delete finds the node gone", "session/session.go",
		"err = nil // the first one has removed it", "// the first one has removed it", "TestAnUnansweredDeleteIsRepeatedOnce"}},
	{byUnit, Mistake{"a request for a caller has no time limit", "session/session.go",
		"context.WithTimeout(s.life, limit)", "context.WithTimeout(s.life, 1000*limit)", "TestARequestWithoutAnAnswerMeetsATimeLimit"}},
	{byUnit, Mistake{"callers take all connections", "session/session.go",
		"case s.slots <- struct{}{}:\n\t\treturn s.admit(ctx)", "case s.slots <- struct{}{}:\n\t\tselect {\n\t\tcase <-s.slots:\n\t\tdefault:\n\t\t}\n\t\treturn nil", "TestCallersTakeTurns"}},
	{byUnit, Mistake{"a caller that leaves a full store keeps its slot", "session/session.go",
		"if err = cmp.Or(s.lease.Err(), err); err != nil {\n\t\t<-s.slots", "if err = cmp.Or(s.lease.Err(), err); err != nil {", "TestACallerThatLeavesWhileTheStoreIsFull"}},
	{byEach, Mistake{"an answer that the session is gone ends nothing", "session/session.go",
		"if errors.Is(err, driver.ErrSessionEnded) {", "if false {", "TestAnAnswerThatTheSessionIsGoneEndsIt"}},
	{byEach, Mistake{"a look ignores the watches", "session/look.go",
		"s.watches.Mark()", "0", "TestAWatchOfANodeThatIsGoneHasEnded|TestALookAfterALoss"}},
	{byEach, Mistake{"looks are rare although there are no notices", "session/look.go",
		"return polling", "return s.config.Timeout", "TestALookSaysThatANodeWasReleased"}},
	{byUnit, Mistake{"a node released before the first look counts", "session/look.go",
		"ok && slices.ContainsFunc(before.Nodes, named) && ", "ok && ", "TestANodeReleasedBeforeTheFirstLook"}},
	{byUnit, Mistake{"the first look shows no release", "session/create.go",
		"s.looks.know(c.Queue, Snapshot{Nodes: r.Nodes})", "", "TestALookSaysThatANodeWasReleased"}},
	{byUnit, Mistake{"a waiter leaves dead sessions to its heartbeats", "session/expire.go",
		"expirePause = 2 *", "expirePause = 2000 *", "TestAWaiterWithALongTimeout"}},
	{byUnit, Mistake{"a holder searches for dead sessions", "watches/watches.go",
		"return w.whole || w.own.Token == 0", "return true || w.own.Token == 0", "TestAWaiterWithALongTimeout"}},
	{byUnit, Mistake{"an answer about some nodes ends the watches of others", "session/look.go",
		"asked, version := a.Names, any(nil)", "asked, version := []string(nil), any(nil)", "TestAWatchEndsNoOtherWatch"}},
	{byUnit, Mistake{"an answer about some nodes ends a loss", "session/look.go",
		"if asked == nil {\n\t\ts.notices", "if true {\n\t\ts.notices", "TestALossIsNotOver"}},
	{byUnit, Mistake{"a delete that finds no node says nothing", "session/session.go",
		"} else if errors.Is(err, driver.ErrGone) {\n\t\t\ts.watches", "} else if false {\n\t\t\ts.watches", "TestADeleteThatFindsNoNode"}},
	{byUnit, Mistake{"a quiet store is polled often", "session/look.go",
		"news = a.before.differs(now)", "news = true", "TestOneLookServesAllWatches"}},
	{byUnit, Mistake{"notices that overtake an answer are lost", "session/watch.go",
		"a.gone = append(a.gone, n)", "_ = a", "TestNoticesThatOvertakeTheAnswer"}},
	{byUnit, Mistake{"a create trusts notices that were lost", "session/watch.go",
		"a.lost = true", "a.lost = false", "TestNoticesThatOvertakeTheAnswer"}},
	{byUnit, Mistake{"a notice after a loss hands the lock on", "session/watch.go",
		"if notices.stale[queue] != 0 {", "if false {", "TestANoticeAfterALoss"}},
	{byNotices, Mistake{"a loss makes nobody look", "session/watch.go",
		"n.mu.Unlock()\n\th.s.looks.now()", "n.mu.Unlock()", "TestANoticeAfterALoss"}},
	{byUnit, Mistake{"a forged notice hands the lock on", "watches/watches.go",
		`of == nil || of.proof == "" || of.proof != proof`, "of == nil", "TestANoticeWithoutTheProof"}},
	{byNotices, Mistake{"own waiters do not wait for the notice", "session/session.go",
		"s.watches.Left(c.Queue, was.Node)", "s.watches.Gone(c.Queue, was.Node, driver.Released)", "TestANoticeWithTheProof"}},
}
