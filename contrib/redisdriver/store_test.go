package redisdriver

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// The tests in this file cover well-known faults of Redis locks.

func spec() driver.NodeSpec { return driver.NodeSpec{Prefix: "web-W-", Data: []byte("web")} }

func TestASessionLeavesNoKeys(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	dead, _ := s.join(t, "stock/42")
	s.drop(t, inside(dead).id)
	keys := s.server.Do("KEYS", s.key("*")).([]any)
	require.ElementsMatch(t, []any{s.key("seq"), s.key("floor"), s.key("gen")}, keys)
}

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

// A client's clock may differ from the server's, so instants would be wrong.
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
		for _, arg := range command[min(2, len(command)):] { // skip command name and script hash
			if strings.HasPrefix(arg, `{"`) {
				continue // the node's data, which no script interprets
			}
			for _, digits := range regexp.MustCompile(`\b\d{10,}\b`).FindAllString(arg, -1) {
				assert.Equal(t, sequence, digits, "argument %q of %q may be an instant", arg, command)
			}
		}
	}
}

// Clock values alone could repeat within a microsecond, or fall.
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

// After a fail-over that lost data, the node ahead of a waiter may not be the
// last one that was there.
func TestAReleaseInOldDataMakesNobodyAHolder(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	holder, held := s.join(t, "stock/42")
	waiter := s.session()
	waits := spec()
	waits.Predecessor = func([]driver.Node) int { return 0 }
	_, err := waiter.Create(t.Context(), "stock/42", waits)
	require.NoError(t, err)
	s.server.Do("HSET", s.key("gen"), "id", "before", "run", "before")
	require.ErrorIs(t, holder.Delete(t.Context(), "stock/42", held.Place, driver.Released), driver.ErrSessionEnded)
	require.Equal(t, int64(2), s.server.Do("ZCARD", s.key("q:stock/42")))
}

func withoutMemory(server *redistest.Server) (mend func()) {
	server.Do("CONFIG", "SET", "maxmemory", "1")
	return func() { server.Do("CONFIG", "SET", "maxmemory", "0") }
}

// Redis must accept heartbeats and deletes even when it is out of memory.
func TestNoLockIsLostForLackOfMemory(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server, longTimeout)
	made := s.session()
	held := create(t, made, "stock/42")
	cancels := s.proxy(made).HoldRequests(is(faults.OpCleanUp))
	s.proxy(made).LoseReply(is(faults.OpCreate))
	_, err := made.Create(t.Context(), "stock/43", spec())
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

// Scripts expire sessions first, so a bad key could stop all locks.
func TestAKeyOfAnotherTypeStopsNoOtherLock(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	other := s.session()
	create(t, other, "stock/42")
	for _, end := range []func(driver.Session){
		func(x driver.Session) { require.NoError(t, x.Close()) },
		func(x driver.Session) { s.server.Do("ZADD", s.key("sessions"), "XX", "0", inside(x).id) },
	} {
		s.server.Do("DEL", s.key("q:stock/44"))
		ends := s.session()
		for _, queue := range []string{"stock/42", "stock/44"} {
			create(t, ends, queue)
		}
		for _, queue := range []string{"stock/43", "stock/44"} {
			s.server.Do("SET", s.key("q:"+queue), "a string")
			_, err := ends.Create(t.Context(), queue, spec())
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

func TestOneRequestCancelsManyCreates(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made := s.session()
	var creates []session.Change
	for number := range int64(3) {
		creates = append(creates, session.Change{Queue: "stock/42", Prefix: "web-W-", Number: number})
		_, err := inside(made).Do(t.Context(), creates[number])
		require.NoError(t, err)
	}
	require.NoError(t, inside(made).Cancel(t.Context(), creates))
	require.Zero(t, s.server.Do("EXISTS", s.key("q:stock/42")))
}

// Above 2^53, floating-point sequences of two nodes could be equal.
func TestSequencesThatAreUsedUpMakeNoNode(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made := s.session()
	s.server.Do("SET", s.key("seq"), "9007199254740990")
	last := create(t, made, "stock/42")
	require.Equal(t, int64(9007199254740991), last.Token)
	for range 2 {
		_, err := made.Create(t.Context(), "stock/42", spec())
		require.ErrorContains(t, err, "use another namespace")
		require.NotErrorIs(t, err, driver.ErrUnavailable)
	}
	require.Equal(t, "9007199254740991", s.server.Do("GET", s.key("seq")))
	require.NoError(t, made.Delete(t.Context(), "stock/42", last.Place, driver.Released))
}

// A mark that stays would take memory until the session ends.
func TestACancelledNodeLeavesNoMark(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made := s.session()
	becomes := func(marks ...any) {
		t.Helper()
		require.Eventually(t, func() bool { return slices.Equal(s.marks(made), marks) }, 10*time.Second, time.Millisecond)
	}
	s.proxy(made).LoseReply(is(faults.OpCreate))
	_, err := made.Create(t.Context(), "stock/42", spec())
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

// marks returns what the store records about the session's nodes and its
// cancelled creates.
func (s *store) marks(of driver.Session) []any {
	values, _ := s.server.Do("HVALS", s.key("s:"+inside(of).id)).([]any)
	return values
}

func next(t *testing.T, w driver.Watch) driver.Cause {
	t.Helper()
	why, _ := testenv.Receive(t, w.C, "the watch sends or ends")
	return why
}

func TestObserversOfAFreeLockLeaveNothing(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made := s.session()
	for _, free := range []bool{true, false} {
		_, err := made.WatchQueue(t.Context(), "stock/42")
		require.NoError(t, err)
		require.Equal(t, free, s.server.Do("PTTL", s.key("w:stock/42")).(int64) > 0)
		create(t, made, "stock/42")
	}
}

// The store records who watches a node, and must forget waiters that give up.
func TestWaitersThatGiveUpLeaveNothing(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	holds := s.session()
	made := s.session()
	held := create(t, holds, "stock/42")
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
		gives := create(t, made, "stock/42")
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
