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
		"s.Lease().CountFrom(sent, 0); err != nil {", "s.Lease().CountFrom(sent, 0); err != nil && s == nil {",
		"TestTheLeaseCountsFromBeforeTheGrant",
	},
	{
		"a keep-alive alone proves that the lease lives", "heartbeat.go",
		"if alive.Header.RaftTerm == read.Header.RaftTerm {", "if read != nil {",
		"TestAKeepAliveOfAnOldTermDoesNotCount",
	},
	{
		"a session does not see that the revision goes back", "seen.go",
		"if h.Revision < before {", "if before < 0 {",
		"TestASessionEndsIfTheRevisionGoesBack",
	},
	{
		"answers of another cluster count", "seen.go",
		"|| s.cluster.Load() == h.ClusterId", "|| h.ClusterId != 0",
		"TestTwoClustersAreNotOneStore",
	},
	{
		"a node of another session is taken for the own", "layout.go",
		"if m.session == b.id {", "if true {",
		"TestANodeInARestoredBackup",
	},
	{
		"a create that arrives late is not refused", "backend.go",
		`(key), "=", b.reaped.Load())).`, `(key), ">", -1)).`,
		"TestConformance/rule04/a-create-that-arrives-late-leaves-nothing",
	},
	{
		"orphans that appear late are not refused", "backend.go",
		"append(deletes, cancels)...", "append(deletes, cancels)[:len(deletes)]...",
		"TestUnansweredCreatesAreRemovedTogether",
	},
	{
		"a create that is rejected because of orphans is not sent again", "backend.go",
		"		b.reaped.Store(latest)\n", "		if latest >= 0 {\n			return nil, errExpired\n		}\n",
		"TestACreateThatIsRejectedIsSentAgain",
	},
	{
		"a key is used again before its create is undone", "backend.go",
		"		return session.Refused(err)\n	}\n",
		"		return session.Refused(err)\n	}\n	b.mu.Lock()\n	defer b.mu.Unlock()\n" +
			"	b.numbers[c.Queue].free = append(b.numbers[c.Queue].free, b.sent[c.Number].number)\n",
		"TestANodeNeverTakesAKeyThatACancellationRemoves",
	},
	{
		"a removal by an operator does not compare the token", "inspect.go",
		"if err == nil && m.Token != p.Token {", "if false {",
		"TestConformance/remove/remove-spares-a-node-of-another-token",
	},
	{
		"a removal by an operator ends the session", "inspect.go",
		"			Then(clientv3.OpDelete(key)).Commit()", "			Then(clientv3.OpDelete(key)).Commit()\n		_, _ = b.client.Revoke(ctx, m.session)",
		"TestConformance/remove/remove-leaves-the-owner-its-session",
	},
	{
		"a create that etcd has refused is cancelled", "backend.go",
		"	if errors.Is(err, rpctypes.ErrNoSpace) { // may", "	if false { // may",
		"TestARefusedCreateIsNotCancelled",
	},
	{
		"a create that etcd has refused has made no node", "backend.go",
		"		_, failed := b.commit(ctx, b.deletes(c)...)\n", "		failed := error(nil)\n",
		"TestACreateThatEtcdMakesAndRefusesLeavesNothing",
	},
	{
		"a cancellation needs space", "backend.go",
		"			_, _ = b.commit(ctx, deletes...)\n", "",
		"TestALostCreateLeavesNothingIfThereIsNoSpace",
	},
	{
		"a create that was sent twice returns a token that its node does not have", "backend.go",
		"		token, members = members[i].Token, members[:i]", "		members = members[:i]",
		"TestACreateThatAProxySendsTwiceReturnsTheNode",
	},
	{
		"every node has a key of its own", "numbers.go",
		"		q.free = append(q.free, n.number)\n", "",
		"TestALockUsesTheKeyOfTheLockBefore",
	},
	{
		"a node belongs to no lease", "backend.go",
		"nodeValue(c.Prefix, c.Data), clientv3.WithLease(b.id))", "nodeValue(c.Prefix, c.Data))",
		"TestConformance/rule09/close-removes-the-nodes",
	},
	{
		"nodes are ordered by their keys", "layout.go",
		"m.Node = nodeOf(string(prefix), kv.CreateRevision)", "m.Node = nodeOf(string(prefix), kv.CreateRevision%7)",
		"TestConformance/rule01/concurrent-creates-are-listed-in-the-order-of-their-tokens",
	},
	{
		"a session does not wait until the watch is open", "listener.go",
		"	select {\n	case <-b.listener.follow(q.Queue, far):\n", "	b.listener.follow(q.Queue, far)\n	select {\n	default:\n",
		"TestAHandOver",
	},
	{
		"a list from before the watch counts", "listener.go",
		"if f.ids == nil || f.opening > 0 {", "if f.ids == nil {",
		"TestAListFromBeforeTheWatchDoesNotCount",
	},
	{
		"the events of a new stream count before a look", "listener.go",
		"		if f.again {\n", "		if false {\n",
		"TestAReleaseAfterALostStreamOnlyMakesTheWaiterLook",
	},
	{
		"every deletion is a release", "listener.go",
		"released[e.Kv.ModRevision] == id:", `released[0] == "":`,
		"TestConformance/rule13/close-is-not-released",
	},
	{
		"an event of an earlier node with the same key counts", "listener.go",
		"was = was && old.created <= e.Kv.ModRevision", "was = was && old.created > 0",
		"TestAnEventOfAnEarlierNodeWithTheSameKeyDoesNotCount",
	},
	{
		"events before the first list are lost", "listener.go",
		"		f.early = append(f.early, events...)\n", "",
		"TestAnEventThatOvertakesTheFirstListIsNotMissed",
	},
	{
		"a list replaces what events have told", "listener.go",
		"if _, known := open.nodes[m.id]; !known {", "if true {",
		"TestAListDoesNotHideAnEventThatFollows",
	},
	{
		"a waiter far behind does not watch its own node", "listener.go",
		"return []string{keys + own, ", "return []string{keys + ahead[i].id, ",
		"TestAWaiterFarBehindReceivesOnlyWhatConcernsIt",
	},
	{
		"a waiter far behind goes on watching two nodes when its session needs more", "listener.go",
		"f == nil || f.keys != nil || far", "f == nil || far",
		"TestASessionWithAWaiterFarBehindFollowsTheQueueForAnother",
	},
	{
		"the watches of a waiter far behind stay open", "listener.go",
		"			l.close(f)\n", "",
		"TestASessionWithAWaiterFarBehindFollowsTheQueueForAnother",
	},
	{
		"delete ignores whether the node is there", "backend.go",
		"reply.Deleted == 0", "reply.Deleted < 0",
		"TestConformance/rule07/a-delete-after-an-operator-finds-the-node-gone",
	},
	{
		"a release ignores whether the node is there", "backend.go",
		"	if err == nil && !reply.Succeeded {\n", "	if false {\n",
		"TestConformance/rule13/released-does-not-overtake|^TestAReleaseAfterAnOperatorFindsTheNodeGone",
	},
	{
		"a key is used again although its removal may still arrive", "backend.go",
		"n.lost || err != nil && ", "n.lost || ctx == nil && ",
		"TestANodeNeverTakesAKeyThatALateDeleteRemoves",
	},
	{
		"a key is used again in the next lock although its removal may still arrive", "numbers.go",
		"		b.lost = max(b.lost, n.number)\n", "",
		"TestANodeNeverTakesAKeyThatALateDeleteRemoves",
	},
	{
		"a key is used again while a second removal is under way", "numbers.go",
		"		delete(b.own, token)\n		b.release(n)\n", "		delete(b.own, token)\n		n.uses = 1\n		b.release(n)\n		n.uses = 99\n",
		"TestANodeNeverTakesAKeyThatASecondDeleteRemoves",
	},
	{
		"an answered removal counts as under way", "backend.go",
		"	b.release(n)\n	return err", "	return err",
		"TestAKeyIsFreeAfterTwoDeletesOfItsNode",
	},
	{
		"each heartbeat logs in", "heartbeat.go",
		"	if h.stream == nil {", "	if h.stream = nil; true {",
		"TestHeartbeatsDoNotLogIn",
	},
	{
		"the client library sends a request again", "driver.go",
		"ctx.Err() == nil && (c == codes.Canceled", "ctx == nil && (c == codes.Canceled",
		"TestARequestThatAProxyGivesUpIsNotSentAgain",
	},
	{
		"a session does not log in again", "driver.go",
		"		err := c.logIn(ctx, reply, invoke(ctx, method, request, reply, conn, opts...))",
		"		err := invoke(ctx, method, request, reply, conn, opts...)",
		"TestASessionLogsInAgainIfItsTokenIsNotValid",
	},
	{
		"gRPC computes the window", "driver.go",
		",\n		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))", ")",
		"TestASessionThatFollowsAQueueSendsNothing",
	},
	{
		"a request has the time limit of package session", "backend.go",
		"	limit := b.settings.requestTimeout()\n", "	limit := b.timeout\n",
		"TestASilentConnectionIsNoDeadlineOfTheCaller",
	},
	{
		"the key of a release stays", "listener.go",
		"		if f.told {\n", "		if false {\n",
		"TestASessionLeavesNoKeyInAQueueThatItStopsFollowing",
	},
	{
		"a session may stop following a queue while it tells of a release", "listener.go",
		"		f.told = true\n		l.touch(f)\n", "		f.told = true\n",
		"TestASessionLeavesNoKeyInAQueueThatItStopsFollowing",
	},
	{
		"a stream without watches stays open", "listener.go",
		"	if len(unused) > 0 && len(l.queues) == 0 {", "	if false {",
		"TestASessionThatFollowsAQueueAgainBeginsAStream",
	},
	{
		"a stream whose token has expired is kept", "listener.go",
		"		return !reply.Created || !reply.Canceled\n", "		return true\n",
		"TestAStreamWhoseTokenHasExpiredIsReplaced",
	},
	{
		"a stream on which etcd has ended a watch is kept", "listener.go",
		"	return !reply.Canceled\n", "	return true\n",
		"TestAStreamOnWhichAWatchHasEndedIsReplaced",
	},
	{
		"a stream that falls behind is kept", "listener.go",
		"} else if now.Sub(l.asked) > l.b.timeout/4 {", "} else if false {",
		"TestAStreamThatFallsBehindIsReplaced",
	},
	{
		"a stream that falls behind is replaced on the same server", "servers.go",
		"method == watchMethod && server == s.watches", "false",
		"TestAStreamForWatchesBeginsAtAnotherServer",
	},
	{
		"a request that begins a session waits for one server", "driver.go",
		"	return c.askAnother(ctx, request, ", "	return (&connector{settings: new(settings)}).askAnother(ctx, request, ",
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
		"a value goes with the session", "inspect.go",
		"clientv3.OpPut(key, valueToken(token)+string(c.Data))", "clientv3.OpPut(key, valueToken(token)+string(c.Data), clientv3.WithLease(b.id))",
		"TestConformance/value/a-value-outlives-node-and-session",
	},
	{
		"an older value overwrites a newer one", "inspect.go",
		`"<", valueToken(token+1)`, `">", valueToken(0)`,
		"TestConformance/value/an-older-contender-overwrites-nothing",
	},
	{
		"a value is set without its node", "backend.go",
		`(b.key(n)), "=", token)`, `(b.key(n)), ">", -1)`,
		"TestConformance/value/set-value-of-a-removed-node-says-so",
	},
}

func TestEachMistakeIsSeen(t *testing.T) { mistakes.Run(t, etcdtest.Require, planted) }
