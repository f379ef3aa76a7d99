package mistakes

import (
	"path/filepath"
	"runtime"
	"slices"
)

// Engine returns mistakes in package driver/session, each with the test of that
// package that sees it.
func Engine() (all []Mistake) {
	for _, m := range engine {
		all = append(all, m.Mistake)
	}
	return inSession(all)
}

// Kit returns those mistakes that a conformance kit sees, with the kit as the
// test, for a driver whose store has the given properties.
func Kit(kit string, store ...Seen) (all []Mistake) {
	for _, m := range engine {
		if m.Seen == OnEach || slices.Contains(store, m.Seen) {
			m.Mistake[4] = kit
			all = append(all, m.Mistake)
		}
	}
	return inSession(all)
}

func inSession(all []Mistake) []Mistake {
	_, here, _, _ := runtime.Caller(0)
	for i := range all {
		all[i][1] = filepath.Join(filepath.Dir(here), "../../driver", all[i][1])
	}
	return all
}

// Seen says which drivers' kits see a mistake.
type Seen int

const (
	ByNone       Seen = iota // only a test of the package itself, or the kits of some drivers
	OnEach                   // each
	WithPolling              // that of a store without any
	OverNetworks             // that of a store whose answers can be lost
)

var engine = []struct {
	Seen
	Mistake
}{
	{ByNone, Mistake{"a call does not return when its ctx ends", "session/session.go",
		"if ctx.Done() == nil {", "if true {", "TestACallerThatLeavesInterruptsNoRequest"}},
	{OnEach, Mistake{"the node of a caller that has left stays", "session/create.go",
		"if err == nil {\n\t\t\ts.removeLate(", "if false {\n\t\t\ts.removeLate(", "TestTheNodeOfACallerThatHasLeft"}},
	{OverNetworks, Mistake{"a create without an answer is not cancelled", "session/create.go",
		"if unknownOutcome(err) {\n\t\t\ts.orphan(c)", "if false {\n\t\t\ts.orphan(c)", "TestLostRepliesAreCleanedUpTogether"}},
	{ByNone, Mistake{"lost replies are cleaned up one by one", "session/create.go",
		"cancelsAtOnce = 100", "cancelsAtOnce = 1", "TestLostRepliesAreCleanedUpTogether"}},
	{ByNone, Mistake{"the data of a create are kept", "session/create.go",
		"bytes.Clone(n.Data)", "bytes.TrimSpace(n.Data)", "TestLostRepliesAreCleanedUpTogether"}},
	{OverNetworks, Mistake{"a repeated delete finds the node gone", "session/session.go",
		"err = nil // the first one has removed it", "// the first one has removed it", "TestAnUnansweredDeleteIsRepeatedOnce"}},
	{ByNone, Mistake{"a request for a caller has no time limit", "session/session.go",
		"context.WithTimeout(s.life, limit)", "context.WithTimeout(s.life, 1000*limit)", "TestARequestWithoutAnAnswerMeetsATimeLimit"}},
	{ByNone, Mistake{"callers take all connections", "session/session.go",
		"case s.slots <- struct{}{}:\n\t\treturn s.admit(ctx)", "case s.slots <- struct{}{}:\n\t\tselect {\n\t\tcase <-s.slots:\n\t\tdefault:\n\t\t}\n\t\treturn nil", "TestCallersTakeTurns"}},
	{ByNone, Mistake{"a caller that leaves a full store keeps its slot", "session/session.go",
		"if err = cmp.Or(s.lease.Err(), err); err != nil {\n\t\t<-s.slots", "if err = cmp.Or(s.lease.Err(), err); err != nil {", "TestACallerThatLeavesWhileTheStoreIsFull"}},
	{OnEach, Mistake{"an answer that the session is gone ends nothing", "session/session.go",
		"if errors.Is(err, driver.ErrSessionEnded) {", "if false {", "TestAnAnswerThatTheSessionIsGoneEndsIt"}},
	{OnEach, Mistake{"a look ignores the watches", "session/look.go",
		"s.watches.Mark()", "0", "TestAWatchOfANodeThatIsGoneHasEnded|TestALookAfterALoss"}},
	{WithPolling, Mistake{"looks are rare although there are no notices", "session/look.go",
		"return polling", "return s.config.Timeout", "TestALookSaysThatANodeWasReleased"}},
	{ByNone, Mistake{"a node released before the first look counts", "session/look.go",
		"ok && slices.ContainsFunc(before.Nodes, named) && ", "ok && ", "TestANodeReleasedBeforeTheFirstLook"}},
	{ByNone, Mistake{"the first look shows no release", "session/create.go",
		"s.looks.know(c.Queue, r.Snapshot)", "", "TestALookSaysThatANodeWasReleased"}},
	{ByNone, Mistake{"a waiter leaves dead sessions to its heartbeats", "session/expire.go",
		"expirePause = 2 *", "expirePause = 2000 *", "TestAWaiterWithALongTimeout"}},
	{ByNone, Mistake{"a holder searches for dead sessions", "watches/watches.go",
		"return w.whole || w.own.Token == 0", "return true || w.own.Token == 0", "TestAWaiterWithALongTimeout"}},
	{ByNone, Mistake{"an answer about some nodes ends the watches of others", "session/look.go",
		"asked, version := a.Names, any(nil)", "asked, version := []string(nil), any(nil)", "TestAWatchEndsNoOtherWatch"}},
	{ByNone, Mistake{"an answer about some nodes ends a loss", "session/look.go",
		"if asked == nil {\n\t\ts.notices", "if true {\n\t\ts.notices", "TestALossIsNotOver"}},
	{ByNone, Mistake{"a delete that finds no node says nothing", "session/session.go",
		"} else if errors.Is(err, driver.ErrGone) {\n\t\t\ts.watches", "} else if false {\n\t\t\ts.watches", "TestADeleteThatFindsNoNode"}},
	{ByNone, Mistake{"a quiet store is polled often", "session/look.go",
		"news = a.before.differs(now)", "news = true", "TestOneLookServesAllWatches"}},
	{ByNone, Mistake{"notices that overtake an answer are lost", "session/watch.go",
		"a.gone = append(a.gone, n)", "_ = a", "TestNoticesThatOvertakeTheAnswer"}},
	{ByNone, Mistake{"notices of a queue that overtake an answer are lost", "session/watch.go",
		"range a.shown {", "range a.shown[:0] {", "TestNoticesThatOvertakeTheAnswer"}},
	{ByNone, Mistake{"a notice of a queue makes nobody look", "session/watch.go",
		"if !recorded {", "if !recorded && false {", "TestANoticeThatNeedNotBeTrue"}},
	{ByNone, Mistake{"a notice of a queue makes all look", "session/watch.go",
		"if slices.ContainsFunc(s.watches.Names(queue), missing) {", "if missing != nil {", "TestANoticeThatNeedNotBeTrue"}},
	{ByNone, Mistake{"a released node is missed again", "watches/watches.go",
		"if w.released {", "if false {", "TestANoticeThatNeedNotBeTrue"}},
	{ByNone, Mistake{"a create trusts notices that were lost", "session/watch.go",
		"a.lost = true", "a.lost = false", "TestNoticesThatOvertakeTheAnswer"}},
	{ByNone, Mistake{"a notice after a loss hands the lock on", "session/watch.go",
		"if notices.stale[queue] != 0 {", "if false {", "TestANoticeAfterALoss"}},
	{ByNone, Mistake{"a loss makes nobody look", "session/watch.go",
		"n.mu.Unlock()\n\th.Look()", "n.mu.Unlock()", "TestANoticeAfterALoss"}},
	{ByNone, Mistake{"a forged notice hands the lock on", "watches/watches.go",
		`of == nil || of.proof == "" || of.proof != proof`, "of == nil", "TestANoticeWithoutTheProof"}},
	{ByNone, Mistake{"own waiters do not wait for the notice", "session/session.go",
		"s.watches.Left(c.Queue, was.Node)", "s.watches.Gone(c.Queue, was.Node, driver.Released)", "TestANoticeWithTheProof"}},
}
