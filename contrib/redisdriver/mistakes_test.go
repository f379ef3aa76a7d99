package redisdriver

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/redistest"
)

// The tests in this file cover well-known mistakes of Redis locks.

func spec() driver.NodeSpec { return driver.NodeSpec{Prefix: "web-W-", Data: []byte("web")} }

// A lock made with SETNX followed by EXPIRE stays forever if the process dies
// in between. In this driver, one script creates a session and its deadline.
func TestNoLockOutlivesItsProcess(t *testing.T) {
	s := newStore(t, redistest.Shared(t), "session_timeout=500ms")
	dead, _ := s.join(t, "stock/42")
	s.proxy(dead).Cut() // as if its process had died
	defer s.proxy(dead).Heal()
	s.params = longTimeout // heartbeats are too rare to see the end of the session in time
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lock, err := s.newClient().RWMutex("stock/42").Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock())

	s.drop(t, inside(dead).id)
	s.eval(t, "for _, x in ipairs(redis.call('ZRANGE', sessions, 0, -1)) do drop(x) end return 1", "")
	keys := s.server.Do("KEYS", s.key("*")).([]any)
	require.ElementsMatch(t, []any{s.key("seq"), s.key("floor"), s.key("gen")}, keys, "a session has left keys")
}

// If locks were released by a plain DEL, a holder whose lock has expired would
// delete the lock of the next holder.
func TestNoSessionDeletesTheLockOfAnother(t *testing.T) {
	s := newStore(t, redistest.Shared(t), "session_timeout=10s")
	slow, err := s.Connect(t.Context())
	require.NoError(t, err)
	next, err := s.Connect(t.Context())
	require.NoError(t, err)
	held, err := next.Create(t.Context(), "stock/42", spec())
	require.NoError(t, err)
	require.ErrorIs(t, slow.Delete(t.Context(), "stock/42", held.Place, driver.Released), driver.ErrGone)
	_, err = slow.Replace(t.Context(), "stock/42", held.Place, "web-R-")
	require.ErrorIs(t, err, driver.ErrGone)
	require.Equal(t, int64(1), s.server.Do("ZCARD", s.key("q:stock/42")))
	require.NoError(t, next.Delete(t.Context(), "stock/42", held.Place, driver.Released))
}

// cutFirst disconnects the session that has a node. Calling heal reconnects it.
func (s *store) cutFirst() (heal func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for made, p := range s.proxies {
		if s.server.Do("HLEN", s.key("s:"+inside(made).id)) == int64(1) {
			p.Cut()
			s.t.Cleanup(p.Heal)
			return p.Heal
		}
	}
	s.t.Fatal("no session has a node")
	return nil
}

// No client may send a time to the store, because deadlines computed by clients
// are wrong if the clocks of the clients differ.
func TestNoRequestCarriesAnInstant(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	client := s.newClient()
	require.NoError(t, client.Ping(t.Context()))
	var made driver.Session
	var p *redistest.Proxy
	for made, p = range s.proxies {
		p.Keep()
	}
	lock, err := client.RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, beat(t.Context(), made))
	}
	require.NoError(t, lock.Unlock())
	commands := p.Commands()
	require.Greater(t, len(commands), 4)
	sequence := strconv.FormatInt(lock.Token(), 10) // derived from the server's own clock
	for _, command := range commands {
		for _, arg := range command[min(2, len(command)):] { // skip the command name and the hash of the script
			if strings.HasPrefix(arg, `{"`) {
				continue // the node's data, which no script interprets
			}
			for _, digits := range regexp.MustCompile(`\d{10,}`).FindAllString(arg, -1) {
				assert.Equal(t, sequence, digits, "argument %q of %q may be an instant", arg, command)
			}
		}
	}
}

// Heartbeats must stop when their session ends, and must not revive an ended
// session. A goroutine that kept renewing the lock of a dead holder would block
// all other contenders forever.
func TestNoWatchdogOutlivesItsOwner(t *testing.T) {
	s := newStore(t, redistest.Shared(t), "session_timeout=400ms")
	for _, end := range []func(driver.Session){
		func(x driver.Session) { require.NoError(t, x.Close()) },
		func(x driver.Session) {
			dlocktest.SkewLease(x.(*session.Session).Lease(), time.Hour)
			require.Error(t, x.Err())
		},
	} {
		made, _ := s.join(t, "stock/42")
		beats := func() int { return s.proxy(made).Frames(int32(faults.OpHeartbeat)) }
		for before := beats(); beats() < before+2; time.Sleep(time.Millisecond) {
			if made.Err() != nil { // the session has expired because the machine is slow
				_ = made.Close()
				made, _ = s.join(t, "stock/42")
				before = beats()
			}
		}
		end(made)
		require.Eventually(t, func() bool {
			s.eval(t, "expire() return 1", "")
			return s.server.Do("EXISTS", s.key("q:stock/42")) == int64(0)
		}, 10*time.Second, time.Millisecond, "heartbeats have gone on")

		link := newLink(s.newSettings())
		_, err := link.eval(t.Context(), beatScript, inside(made).id, int64(1e9))
		require.ErrorIs(t, err, driver.ErrSessionEnded)
		link.close()
		require.Nil(t, s.server.Do("ZSCORE", s.key("sessions"), inside(made).id), "a heartbeat has brought a session back")
		require.NoError(t, made.Close())
	}
}

func (s *store) newSettings() *settings {
	parsed, err := parseDSN(s.dsn(s.server.Addr()))
	require.NoError(s.t, err)
	return parsed
}

// Tokens taken only from the server's clock could repeat within a microsecond,
// or decrease when the clock is set back.
func TestATokenIsHigherThanTheLastOne(t *testing.T) {
	s := newStore(t, redistest.Shared(t), "session_timeout=10s")
	client := s.newClient()
	require.NoError(t, client.Ping(t.Context()))
	s.server.Do("SET", s.key("seq"), "4000000000000000") // as if the clock had been far ahead
	lock, err := client.RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(4000000000000001), lock.Token())
	require.NoError(t, lock.Unlock())
}

func withoutMemory(server *redistest.Server) (mend func()) {
	server.Do("CONFIG", "SET", "maxmemory", "1")
	return func() { server.Do("CONFIG", "SET", "maxmemory", "0") }
}

// A Redis server that is out of memory must still accept heartbeats and
// deletes.
func TestNoLockIsLostForLackOfMemory(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server, longTimeout)
	made, err := s.Connect(t.Context())
	require.NoError(t, err)
	held, err := made.Create(t.Context(), "stock/42", spec())
	require.NoError(t, err)
	cancels := s.proxy(made).HoldRequests(is(faults.OpCleanUp))
	s.proxy(made).LoseReply(is(faults.OpCreate))
	_, err = made.Create(t.Context(), "stock/43", spec())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	defer withoutMemory(server)()
	require.NoError(t, beat(t.Context(), made), "a heartbeat was refused")
	require.NoError(t, made.Delete(t.Context(), "stock/42", held.Place, driver.Released))
	cancels.Release()
	require.Eventually(t, func() bool {
		nodes, err := made.List(t.Context(), "stock/43")
		return err == nil && len(nodes) == 0
	}, 10*time.Second, time.Millisecond, "a node cannot be removed")

	s.proxy(made).LoseRequest(is(faults.OpCreate))
	_, err = made.Create(t.Context(), "stock/44", spec())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.Eventually(t, func() bool {
		return slices.Equal(s.marks(made), []any{"-"})
	}, 10*time.Second, time.Millisecond, "a create cannot be cancelled")
}

// Another program may overwrite a queue's key with a value of another type.
// Sessions with a node in this queue must still expire, because a script that
// failed to expire them would make all locks of the namespace fail.
func TestAKeyOfAnotherTypeStopsNoOtherLock(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	other, err := s.Connect(t.Context())
	require.NoError(t, err)
	_, err = other.Create(t.Context(), "stock/42", spec())
	require.NoError(t, err)
	for _, end := range []func(driver.Session){
		func(x driver.Session) { require.NoError(t, x.Close()) },
		func(x driver.Session) { s.server.Do("ZADD", s.key("sessions"), "XX", "0", inside(x).id) },
	} {
		s.server.Do("DEL", s.key("q:stock/44"))
		ends, err := s.Connect(t.Context())
		require.NoError(t, err)
		for _, queue := range []string{"stock/42", "stock/44"} {
			_, err = ends.Create(t.Context(), queue, spec())
			require.NoError(t, err)
		}
		for _, queue := range []string{"stock/43", "stock/44"} {
			s.server.Do("SET", s.key("q:"+queue), "a string")
			_, err = ends.Create(t.Context(), queue, spec())
			require.ErrorContains(t, err, "WRONGTYPE")
		}
		end(ends)
		require.NoError(t, beat(t.Context(), other))
		nodes, err := other.List(t.Context(), "stock/42")
		require.NoError(t, err)
		require.Len(t, nodes, 1)
		require.Nil(t, s.server.Do("ZSCORE", s.key("sessions"), inside(ends).id))
	}
}

// If the reply to a create is lost, the driver cancels the create. It must
// retry a cancellation that fails, because otherwise the node would block the
// queue until its session ends.
func TestACancellationIsRepeatedUntilItIsDone(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server, "session_timeout=10s")
	made, err := s.Connect(t.Context())
	require.NoError(t, err)
	cancels := s.proxy(made).HoldRequests(is(faults.OpCleanUp))
	s.proxy(made).LoseReply(is(faults.OpCreate))
	_, err = made.Create(t.Context(), "stock/42", spec())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	<-cancels.Held()
	server.Do("ACL", "SETUSER", "default", "-hget")
	cancels.Release()
	require.Eventually(t, func() bool {
		log, _ := server.Do("ACL", "LOG").([]any)
		return len(log) > 0
	}, 10*time.Second, time.Millisecond, "no cancellation was refused")
	server.Do("ACL", "SETUSER", "default", "+hget")
	require.Eventually(t, func() bool {
		nodes, err := made.List(t.Context(), "stock/42")
		return err == nil && len(nodes) == 0
	}, 10*time.Second, time.Millisecond, "the node stays")
}

func TestACancellationThatCannotSucceedDelaysNoOther(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made, err := s.Connect(t.Context())
	require.NoError(t, err)
	s.server.Do("SET", s.key("q:other"), "a string")
	_, err = made.Create(t.Context(), "other", spec())
	require.ErrorContains(t, err, "WRONGTYPE")
	s.proxy(made).LoseReply(is(faults.OpCreate))
	_, err = made.Create(t.Context(), "stock/42", spec())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.Eventually(t, func() bool {
		nodes, err := made.List(t.Context(), "stock/42")
		return err == nil && len(nodes) == 0
	}, 10*time.Second, time.Millisecond, "the node stays")
}

// If callers give up faster than the store answers, one request must cancel
// many creates. With a request for each, their nodes would pile up and block
// other contenders.
func TestManyCreatesAreCancelledAtOnce(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made, err := s.Connect(t.Context())
	require.NoError(t, err)
	cancels := s.proxy(made).HoldRequests(is(faults.OpCleanUp))
	const creates = 200
	for range creates {
		s.proxy(made).LoseReply(is(faults.OpCreate))
		_, err := made.Create(t.Context(), "stock/42", spec())
		require.ErrorIs(t, err, driver.ErrUnavailable)
	}
	<-cancels.Held()
	require.EqualValues(t, creates, s.server.Do("ZCARD", s.key("q:stock/42")))
	before := s.proxy(made).Frames(int32(faults.OpCleanUp))
	cancels.Release()
	require.Eventually(t, func() bool {
		nodes, err := made.List(t.Context(), "stock/42")
		return err == nil && len(nodes) == 0
	}, 30*time.Second, time.Millisecond, "a node stays")
	require.Less(t, s.proxy(made).Frames(int32(faults.OpCleanUp))-before, 10)
}

// Lua numbers and sorted-set scores are floating-point. Above 2^53, two nodes
// could get the same sequence, and both be first in the queue.
func TestSequencesThatAreUsedUpMakeNoNode(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made, err := s.Connect(t.Context())
	require.NoError(t, err)
	s.server.Do("SET", s.key("seq"), "9007199254740990")
	last, err := made.Create(t.Context(), "stock/42", spec())
	require.NoError(t, err)
	require.Equal(t, int64(9007199254740991), last.Token)
	for range 2 {
		_, err = made.Create(t.Context(), "stock/42", spec())
		require.ErrorContains(t, err, "use another namespace")
		require.NotErrorIs(t, err, driver.ErrUnavailable)
	}
	require.Equal(t, "9007199254740991", s.server.Do("GET", s.key("seq")))
	require.NoError(t, made.Delete(t.Context(), "stock/42", last.Place, driver.Released))
}

// To reject a create that is still in flight, its cancellation leaves a mark in
// the store. If the create has run, or has been rejected, there must be no mark,
// because it would take memory until the session ends, perhaps for months.
func TestACancelledNodeLeavesNoMark(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made, err := s.Connect(t.Context())
	require.NoError(t, err)
	becomes := func(marks ...any) {
		t.Helper()
		require.Eventually(t, func() bool { return slices.Equal(s.marks(made), marks) }, 10*time.Second, time.Millisecond)
	}
	s.proxy(made).LoseReply(is(faults.OpCreate))
	_, err = made.Create(t.Context(), "stock/42", spec())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	becomes()

	arrive := s.proxy(made).HoldRequest(is(faults.OpCreate))
	_, err = made.Create(t.Context(), "stock/42", spec())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	becomes("-")
	arrive()
	becomes()
	nodes, err := made.List(t.Context(), "stock/42")
	require.NoError(t, err)
	require.Empty(t, nodes)
}

// marks returns what the store has about the session's nodes and cancelled
// creates.
func (s *store) marks(of driver.Session) []any {
	values, _ := s.server.Do("HVALS", s.key("s:"+inside(of).id)).([]any)
	return values
}

func next(t *testing.T, w driver.Watch) driver.Cause {
	t.Helper()
	select {
	case why := <-w.C:
		return why
	case <-time.After(10 * time.Second):
		t.Fatal("the watch neither sends nor ends")
		return driver.Changed
	}
}

// The store records which waiters watch a node, and must forget those that give
// up.
func TestWaitersThatGiveUpLeaveNothing(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	holds, err := s.Connect(t.Context())
	require.NoError(t, err)
	made, err := s.Connect(t.Context())
	require.NoError(t, err)
	held, err := holds.Create(t.Context(), "stock/42", spec())
	require.NoError(t, err)
	waits := spec()
	waits.Predecessor = func(ahead []driver.Node) int { return 0 }
	stays, err := made.Create(t.Context(), "stock/42", waits)
	require.NoError(t, err)
	removed, err := made.Create(t.Context(), "stock/42", waits)
	require.NoError(t, err)
	watch, err := made.Watch(t.Context(), "stock/42", removed.Place, held.Node)
	require.NoError(t, err)
	s.eval(t, "return redis.call('ZREMRANGEBYSCORE', P .. 'q:stock/42', ARGV[2], ARGV[2])", "", strconv.FormatInt(removed.Seq, 10))
	for range 1000 {
		gives, err := made.Create(t.Context(), "stock/42", spec())
		require.NoError(t, err)
		watch, err := made.Watch(t.Context(), "stock/42", gives.Place, held.Node)
		require.NoError(t, err)
		watch.Stop()
		require.NoError(t, made.Delete(t.Context(), "stock/42", gives.Place, driver.Changed))
	}
	require.LessOrEqual(t, s.server.Do("HSTRLEN", s.key("w:stock/42"), held.Name), int64(8192))
	require.Equal(t, driver.Changed, next(t, watch), "a waiter whose node is gone was forgotten without a notice")
	require.NoError(t, holds.Delete(t.Context(), "stock/42", held.Place, driver.Released))
	require.Equal(t, driver.Released, next(t, stays.Watch), "a waiter was forgotten")
}
