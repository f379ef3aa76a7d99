package redisdriver

import (
	"testing"

	"github.com/dlock-go/dlock/internal/mistakes"
	"github.com/dlock-go/dlock/internal/redistest"
)

var planted = []mistakes.Mistake{
	{"a session deletes the nodes of others", "lua/common.lua",
		"if owner == session then return m, name, op end", "do return m, name, op end", "TestNoSessionDeletesTheLockOfAnother"},
	{"a create makes a node for a session that has ended", "lua/create.lua",
		"if not deadline or tonumber(deadline) <= now then", "if false then", "TestNoNodeWithoutASession"},
	{"a heartbeat brings a session back", "lua/beat.lua",
		"if not alive() then return ended end", "", "TestNoWatchdogOutlivesItsOwner"},
	{"a cancellation leaves no mark", "lua/cancel.lua",
		"redis.call('HSET', s, op, '-')", "", "TestConformance/rule04/a-create-that-arrives-late-leaves-nothing"},
	{"tokens do not look at the clock", "lua/create.lua",
		"string.format('%010.0f', now)", "string.format('%010.0f', (redis.call('GET', KEYS[1]) or 0) + 1)", "TestAServerThatHasLostItsDataEndsTheSession"},
	{"tokens are the clock", "lua/create.lua",
		"if last and tonumber(last) >= now then", "if false then", "TestATokenIsHigherThanTheLastOne"},
	{"a release does not look at the waiter's node", "lua/common.lua",
		"if why == 'r' and not owned(", "if false and not owned(", "TestConformance/rule13/released-does-not-overtake-an-operator"},
	{"each removal is a release", "lua/common.lua",
		"        send(session, why, name, queue)", "        send(session, 'r', name, queue)", "TestConformance/rule13/delete-is-not-released"},
	{"a session goes before its nodes", "lua/common.lua",
		"for _, v in ipairs(redis.call('HVALS', s)) do",
		"local all = redis.call('HVALS', s) redis.call('DEL', s) redis.call('ZREM', sessions, session) for _, v in ipairs(all) do",
		"TestNoNodeStaysWhenAClusterMovesItsKeys"},
	{"a rename removes the node first", "lua/replace.lua",
		"redis.call('ZADD', q,", "redis.call('ZREM', q, member) redis.call('ZADD', q,", "TestNoNodeStaysWhenAClusterMovesItsKeys"},
	{"each cancellation leaves a mark", "lua/cancel.lua",
		"redis.call('HDEL', s, op)", "redis.call('HSET', s, op, '-')", "TestACancelledNodeLeavesNoMark"},
	{"a heartbeat needs memory", "lua/common.lua",
		"redis.call('ZREM', sessions, '')", "", "TestNoLockIsLostForLackOfMemory"},
	{"a replica answers", "lua/common.lua",
		"redis.call('ZREM', sessions, '')", "", "TestAReplicaAmongTheAddressesIsNotAsked"},
	{"a cancellation is of one create only", "lua/cancel.lua",
		"for i = 2, #ARGV do", "for i = 2, 2 do", "TestManyCreatesAreCancelledAtOnce"},
	{"sequences do not end", "lua/create.lua",
		"tonumber(last) >= 9007199254740991", "false", "TestSequencesThatAreUsedUpMakeNoNode"},
	{"the store never forgets a waiter", "lua/common.lua",
		"math.floor(#new / 4096) > math.floor(#old / 4096)", "false", "TestWaitersThatGiveUpLeaveNothing"},
	{"the store forgets a waiter without a notice", "lua/common.lua",
		"    send(session, 'c', own, queue)\n    return ''", "    return ''", "TestWaitersThatGiveUpLeaveNothing"},
	{"a key of another type keeps a session from its end", "lua/common.lua",
		"redis.call('TYPE', P .. 'q:' .. queue).ok ~= 'zset'", "false", "TestAKeyOfAnotherTypeStopsNoOtherLock"},
	{"a close leaves the nodes", "lua/close.lua",
		"drop(self)", "redis.call('ZREM', sessions, self)", "TestConformance/rule09/close-removes-the-nodes"},
	{"a removal by an operator does not compare the token", "lua/remove.lua",
		"or tonumber(token) ~= tonumber(ARGV[4])", "", "TestConformance/remove/remove-spares-a-node-of-another-token"},
	{"a removal by an operator compares the token alone", "lua/remove.lua",
		"local member = find(queue, name)", "local member = redis.call('ZRANGEBYSCORE', P .. 'q:' .. queue, ARGV[4], ARGV[4])[1] name = string.match(member or '', '^[^/]*')",
		"TestConformance/remove/remove-spares-a-node-of-another-name"},
	{"a removal by an operator is a release", "lua/remove.lua",
		"gone(queue, name, 'c')", "gone(queue, name, 'r')", "TestConformance/remove/remove-is-not-released"},
	{"a value is kept without its node", "lua/keep.lua",
		"if not owned(queue, self, seq) then", "if false then", "TestConformance/keep/keep-of-a-node-that-is-gone-says-so"},
	{"an older value overwrites a newer one", "lua/keep.lua",
		"> tonumber(seq) then", "< 0 then", "TestConformance/keep/an-older-contender-overwrites-nothing"},
	{"a kept value expires", "lua/keep.lua",
		"'value', ARGV[4])", "'value', ARGV[4]) redis.call('PEXPIRE', k, 0)", "TestConformance/keep/every-session-reads"},
	{"a read returns the deadline of the session", "lua/read.lua",
		" - now }", " + 0 }", "TestConformance/read/read-tells-what-is-left-of-the-session"},
}

func TestEachMistakeIsSeen(t *testing.T) { mistakes.Run(t, redistest.Require, planted) }
