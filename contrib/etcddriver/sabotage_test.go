package etcddriver

import (
	"testing"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/mistakes"
)

// planted lists plausible mistakes in the driver, each with the test that must
// catch it.
var planted = []mistakes.Mistake{
	{
		"the lease counts from the reply to the grant", "driver.go",
		"	sent := driver.Now()\n	grant, err := client.Grant(ctx, int64(c.settings.timeout/time.Second))",
		"	grant, err := client.Grant(ctx, int64(c.settings.timeout/time.Second))\n	sent := driver.Now()",
		"TestTheLeaseCountsFromBeforeTheGrant",
	},
	{
		"a keep-alive alone proves that the lease lives", "heartbeat.go",
		"if alive.Header.RaftTerm == read.Header.RaftTerm {", "if read != nil {",
		"TestAKeepAliveOfAnOldTermDoesNotCount",
	},
	{
		"a session does not see that the revision goes back", "heartbeat.go",
		"if read.Header.Revision < newest {", "if newest < 0 {",
		"TestASessionEndsIfTheRevisionGoesBack",
	},
	{
		"a create that arrives late is not refused", "create.go",
		`(key), "=", s.reaped.Load())).`, `(key), ">", -1)).`,
		"TestConformance/rule04/a-create-that-arrives-late-leaves-nothing",
	},
	{
		"orphans that appear late are not refused", "create.go",
		"append(deletes, cancels)...", "append(deletes, cancels)[:len(batch)]...",
		"TestUnansweredCreatesAreRemovedTogether",
	},
	{
		"orphans are removed one by one", "create.go",
		"reapedAtOnce = 127", "reapedAtOnce = 1",
		"TestUnansweredCreatesAreRemovedTogether",
	},
	{
		"orphans stay", "create.go",
		"s.calls.Go(s.reap)", "_ = s.reap",
		"TestConformance/rule04/a-reply-lost-leaves-nothing-and-takes-no-other-node",
	},
	{
		"a create that is rejected because of orphans is not sent again", "create.go",
		"		s.reaped.Store(latest)\n", "		if latest >= 0 {\n			return nil, errClosed\n		}\n",
		"TestACreateThatIsRejectedIsSentAgain",
	},
	{
		"a key is used again before its create is undone", "create.go",
		"	if err == nil {\n		s.giveBack(", "	s.giveBack(o.queue, o.number)\n	if err == nil {\n		s.giveBack(",
		"TestANodeNeverTakesAKeyThatACancellationRemoves",
	},
	{
		"a removal by an operator does not compare the token", "queue.go",
		"if err == nil && m.Token != p.Token {", "if false {",
		"TestConformance/remove/remove-spares-a-node-of-another-token",
	},
	{
		"a removal by an operator ends the session", "queue.go",
		"				Then(clientv3.OpDelete(key)).Commit()", "				Then(clientv3.OpDelete(key)).Commit()\n			_, _ = s.client.Revoke(ctx, m.session)",
		"TestConformance/remove/remove-leaves-the-owner-its-session",
	},
	{
		"a create that etcd has refused is cancelled", "create.go",
		"	if errors.Is(err, rpctypes.ErrNoSpace) { // may", "	if false { // may",
		"TestARefusedCreateIsNotCancelled",
	},
	{
		"a create that etcd has refused has made no node", "create.go",
		"		_, err = s.commit(ctx, s.deletes(o)...)\n", "		err = nil\n",
		"TestACreateThatEtcdMakesAndRefusesLeavesNothing",
	},
	{
		"a cancellation needs space", "create.go",
		"		_, _ = s.commit(ctx, deletes...)\n", "",
		"TestALostCreateLeavesNothingIfThereIsNoSpace",
	},
	{
		"a create that was sent twice returns a token that its node does not have", "create.go",
		"			token, members = members[i].Token, members[:i]", "			members = members[:i]",
		"TestACreateThatAProxySendsTwiceReturnsTheNode",
	},
	{
		"every node has a key of its own", "numbers.go",
		"	n.free = append(n.free, number)\n", "",
		"TestALockUsesTheKeyOfTheLockBefore",
	},
	{
		"a node belongs to no lease", "create.go",
		"nodeValue(n.Prefix, n.Data), clientv3.WithLease(s.id))", "nodeValue(n.Prefix, n.Data))",
		"TestConformance/rule09/close-removes-the-nodes",
	},
	{
		"nodes are ordered by their keys", "layout.go",
		"min(max(a.Seq-b.Seq, -1), 1)", "strings.Compare(a.id, b.id)",
		"TestConformance/rule01/concurrent-creates-are-listed-in-the-order-of-their-tokens",
	},
	{
		"a watch is armed without a list", "queuewatch.go",
		"	err := q.refresh(limited)\n", "	err := limited.Err()\n",
		"(TestNothingIsMissedBetweenTheListAndTheWatch|TestAHandOver)",
	},
	{
		"a lost watch is opened again without a list", "queuewatch.go",
		"			q.s.watches.Gone(q.queue, driver.Node{Name: name}, driver.Changed)\n		}\n	}\n	q.nodes = listed",
		"			_ = name\n		}\n	}\n	q.nodes = listed",
		"TestAWatchSurvivesACompactionOfWhatItHasMissed",
	},
	{
		"the copy shows which watches to end", "queuewatch.go",
		"if !names[name] {",
		"if !names[name] && q.has(name, 0) {",
		"TestConformance/rule06/a-watch-armed-by-create-while-notices-are-lost",
	},
	{
		"every deletion is a release", "queuewatch.go",
		"case was && e.Type == mvccpb.DELETE && id == releasedID:",
		`case was && e.Type == mvccpb.DELETE && releasedID != "no node":`,
		"TestConformance/rule13/close-is-not-released",
	},
	{
		"a waiter far behind does not watch its own node", "queuewatch.go",
		"q.keys+q.far.own", "q.keys+q.far.ahead",
		"TestAWaiterFarBehindReceivesOnlyWhatConcernsIt",
	},
	{
		"a waiter far behind goes on watching two nodes when its session needs more", "queuewatch.go",
		"q.far == nil && f == nil", "f == nil",
		"TestASessionWithAWaiterFarBehindFollowsTheQueueForAnother",
	},
	{
		"the watches of a waiter far behind stay open", "queuewatch.go",
		"		q.before.end()\n", "",
		"TestASessionWithAWaiterFarBehindFollowsTheQueueForAnother",
	},
	{
		"delete ignores whether the node is there", "queue.go",
		"reply.Deleted == 0", "reply.Deleted < 0",
		"TestConformance/rule07/a-delete-after-an-operator-finds-the-node-gone",
	},
	{
		"a release ignores whether the node is there", "queue.go",
		"	if !reply.Succeeded {\n		return driver.ErrGone\n	}\n", "",
		"TestConformance/rule13/released-does-not-overtake|^TestAReleaseAfterAnOperatorFindsTheNodeGone",
	},
	{
		"a key is used again although its removal may still arrive", "queue.go",
		"		n.lost = true\n", "",
		"TestANodeNeverTakesAKeyThatALateDeleteRemoves",
	},
	{
		"a key is used again while a second removal is under way", "queue.go",
		"n.removing == 0 && ", "",
		"TestANodeNeverTakesAKeyThatASecondDeleteRemoves",
	},
	{
		"an answered removal counts as under way", "queue.go",
		"	n.removing -= answered\n", "",
		"TestAKeyIsFreeAfterTwoDeletesOfItsNode",
	},
	{
		"each heartbeat logs in", "heartbeat.go",
		"	if h.stream == nil {", "	if h.stream = nil; true {",
		"TestHeartbeatsDoNotLogIn",
	},
	{
		"the client library sends a request again", "driver.go",
		"c.askAnother, sendOnce, ", "c.askAnother, ",
		"TestARequestThatAProxyGivesUpIsNotSentAgain",
	},
	{
		"a session does not log in again", "driver.go",
		"sendOnce, c.logIn)", "sendOnce)",
		"TestASessionLogsInAgainIfItsTokenIsNotValid",
	},
	{
		"gRPC computes the window", "driver.go",
		"		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),\n", "",
		"TestASessionThatFollowsAQueueSendsNothing",
	},
	{
		"the time limit of a request looks like the caller's", "session.go",
		"if errors.Is(err, context.Canceled) && errors.Is(context.Cause(life), calls.ErrLimit) {",
		"if calls.ErrLimit == nil {",
		"TestASilentConnectionIsNoDeadlineOfTheCaller",
	},
	{
		"a session with a long timeout follows its queues for long", "watch.go",
		"min(s.timeout/16, stopAfter)", "s.timeout/16",
		"TestASessionWithALongTimeoutStopsFollowingAQueue",
	},
	{
		"the key of a release stays", "queuewatch.go",
		"	q.clean()\n", "",
		"TestASessionLeavesNoKeyInAQueueThatItStopsFollowing",
	},
	{
		"a session may stop following a queue while it tells of a release", "queue.go",
		"		q.use()\n", "",
		"TestASessionLeavesNoKeyInAQueueThatItStopsFollowing",
	},
	{
		"a session that follows a queue again uses the stream that has ended", "watch.go",
		"	if len(s.queues) == 0 {", "	if s.stream.number.Load() == 0 {",
		"TestASessionThatFollowsAQueueAgainBeginsAStream",
	},
	{
		"a stream that was lost is resumed", "watch.go",
		"if n <= o.opened {", "if false {",
		"TestAStreamThatWasLostIsNotResumed",
	},
	{
		"a stream whose token has expired is kept", "queuewatch.go",
		"	if !open || refused != nil {\n		return errStream\n", "	if !open || refused != nil {\n		return refused\n",
		"TestAStreamWhoseTokenHasExpiredIsReplaced",
	},
	{
		"a silent stream is kept", "watch.go",
		"s.stream.silence() > s.timeout/2", "false",
		"TestASilentStreamIsReplaced",
	},
	{
		"a stream that falls behind is kept", "watch.go",
		"w.revision < w.want &&", "w.revision < 0 &&",
		"TestAStreamThatFallsBehindIsReplaced",
	},
	{
		"a stream that falls behind is replaced on the same server", "servers.go",
		"method == watchMethod && server == s.watches", "false",
		"TestAStreamForWatchesBeginsAtAnotherServer",
	},
	{
		"a request that begins a session waits for one server", "driver.go",
		"failFast, c.askAnother, ", "failFast, ",
		"TestAFollowerWhoseDiskHangsKeepsNoWaiter",
	},
	{
		"an answer that the time is over ends a connect", "driver.go",
		" || outOfTime(err)", "",
		"TestASessionBeginsAtAnotherServerIfOneAnswersTooLate",
	},
	{
		"an answer that the time is over counts as life", "servers.go",
		", outOfTime(done.Err)", "",
		"TestAServerThatAnswersTooLateIsAvoided",
	},
	{
		"a server without an answer is asked again", "servers.go",
		"s.silent[server] = now.Add(silentFor)", "s.silent[server] = now",
		"TestAHungServerCostsOneRequest",
	},
	{
		"a value goes with the session", "value.go",
		"clientv3.OpPut(key, valueToken(p.Token)+string(value))", "clientv3.OpPut(key, valueToken(p.Token)+string(value), clientv3.WithLease(s.id))",
		"TestConformance/value/a-value-outlives-node-and-session",
	},
	{
		"an older value overwrites a newer one", "value.go",
		`"<", valueToken(p.Token+1)`, `">", valueToken(0)`,
		"TestConformance/value/an-older-contender-overwrites-nothing",
	},
	{
		"a value is set without its node", "value.go",
		`n.id), "=", p.Token)`, `n.id), ">", -1)`,
		"TestConformance/value/set-value-of-a-removed-node-says-so",
	},
}

func TestEachMistakeIsSeen(t *testing.T) { mistakes.Run(t, etcdtest.Require, planted) }
