package redisdriver

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sabotage is a mistake in a script, and a test that has to fail with it.
type sabotage struct {
	name, file   string
	right, wrong string
	test         string
}

var sabotages = []sabotage{
	{"a session deletes the nodes of others", "common",
		"if owner == session then return m, name, op end", "do return m, name, op end", "TestNoSessionDeletesTheLockOfAnother"},
	{"a create makes a node for a session that has ended", "create",
		"if not deadline or tonumber(deadline) <= now then", "if false then", "TestNoNodeWithoutASession"},
	{"a heartbeat brings a session back", "beat",
		"if not alive() then return ended end", "", "TestNoWatchdogOutlivesItsOwner"},
	{"a cancellation leaves no mark", "cancel",
		"redis.call('HSET', s, op, '-')", "", "TestConformance/rule04/a-create-that-arrives-late-leaves-nothing"},
	{"tokens do not look at the clock", "create",
		"string.format('%010.0f', now)", "string.format('%010.0f', (redis.call('GET', KEYS[1]) or 0) + 1)", "TestAServerThatHasLostItsDataEndsTheSession"},
	{"tokens are the clock", "create",
		"if last and tonumber(last) >= now then", "if false then", "TestATokenIsHigherThanTheLastOne"},
	{"a release does not look at the waiter's node", "common",
		"if why == 'r' and not owned(", "if false and not owned(", "TestConformance/rule13/released-does-not-overtake-an-operator"},
	{"each removal is a release", "common",
		"        send(session, why, name, queue)", "        send(session, 'r', name, queue)", "TestConformance/rule13/delete-is-not-released"},
	{"a session goes before its nodes", "common",
		"for _, v in ipairs(redis.call('HVALS', s)) do",
		"local all = redis.call('HVALS', s) redis.call('DEL', s) redis.call('ZREM', sessions, session) for _, v in ipairs(all) do",
		"TestNoNodeStaysWhenAClusterMovesItsKeys"},
	{"a rename removes the node first", "replace",
		"redis.call('ZADD', q,", "redis.call('ZREM', q, member) redis.call('ZADD', q,", "TestNoNodeStaysWhenAClusterMovesItsKeys"},
	{"each cancellation leaves a mark", "cancel",
		"redis.call('HDEL', s, op)", "redis.call('HSET', s, op, '-')", "TestACancelledNodeLeavesNoMark"},
	{"a heartbeat needs memory", "common",
		"redis.call('ZREM', sessions, '')", "", "TestNoLockIsLostForLackOfMemory"},
	{"a replica answers", "common",
		"redis.call('ZREM', sessions, '')", "", "TestAReplicaAmongTheAddressesIsNotAsked"},
	{"a cancellation is of one create only", "cancel",
		"for i = 2, #ARGV do", "for i = 2, 2 do", "TestManyCreatesAreCancelledAtOnce"},
	{"sequences do not end", "create",
		"tonumber(last) >= 9007199254740991", "false", "TestSequencesThatAreUsedUpMakeNoNode"},
	{"the store never forgets a waiter", "common",
		"math.floor(#new / 4096) > math.floor(#old / 4096)", "false", "TestWaitersThatGiveUpLeaveNothing"},
	{"the store forgets a waiter without a notice", "common",
		"    send(session, 'c', own, queue)\n    return ''", "    return ''", "TestWaitersThatGiveUpLeaveNothing"},
	{"a key of another type keeps a session from its end", "common",
		"redis.call('TYPE', P .. 'q:' .. queue).ok ~= 'zset'", "false", "TestAKeyOfAnotherTypeStopsNoOtherLock"},
	{"a close leaves the nodes", "close",
		"drop(self)", "redis.call('ZREM', sessions, self)", "TestConformance/rule09/close-removes-the-nodes"},
}

// sabotaged is the name of an environment variable. Its value is the name of
// the mistake that the process puts into its scripts.
const sabotaged = "DLOCK_REDIS_SABOTAGE"

// plant puts a mistake into the scripts: the one whose name is the value of the
// environment variable sabotaged.
func plant() {
	for _, s := range sabotages {
		if s.name != os.Getenv(sabotaged) {
			continue
		}
		edit = func(name, text string) string {
			if name != s.file {
				return text
			}
			if !strings.Contains(text, s.right) {
				panic("sabotage " + s.name + " changes nothing")
			}
			return strings.ReplaceAll(text, s.right, s.wrong)
		}
	}
	for name, variable := range map[string]**redis.Script{
		"open": &openScript, "beat": &beatScript, "create": &createScript, "cancel": &cancelScript, "delete": &deleteScript,
		"replace": &replaceScript, "list": &listScript, "look": &lookScript, "read": &readScript, "walk": &walkScript, "watch": &watchScript,
		"watchqueue": &watchQueueScript, "close": &closeScript,
	} {
		*variable = script(name)
	}
	scriptOps = newScriptOps()
}

// TestEverySabotageIsSeen runs, for each mistake, the test that has to fail with it,
// in a process of its own.
func TestEverySabotageIsSeen(t *testing.T) {
	t.Parallel()
	for _, s := range sabotages {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			command := exec.Command(os.Args[0], "-test.run", "^"+strings.ReplaceAll(s.test, "/", "$/^")+"$", "-test.timeout", "5m", "-test.v")
			command.Env = append(os.Environ(), sabotaged+"="+s.name)
			out, err := command.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "the mistake is not seen: %s", out)
			assert.Contains(t, string(out), "--- FAIL: "+s.test, "%s", out)
			assert.NotContains(t, string(out), "panic: ", "%s", out)
			assert.NotContains(t, string(out), "compiling script", "%s", out)
		})
	}
}
