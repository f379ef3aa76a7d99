package redisdriver

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/internal/redistest"
)

// longTimeout makes timeouts so long that no periodic check runs during a test
// and no slow request fails.
const longTimeout = "session_timeout=10m&read_timeout=1m"

// requests returns the number of requests by operation, summed over all
// sessions. It leaves out heartbeats and other requests that maintain sessions
// and held locks.
func (s *store) requests() map[faults.Op]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := make(map[faults.Op]int)
	for _, p := range s.proxies {
		for op, n := range p.Counts() {
			sum[faults.Op(op)] += n
		}
	}
	maps.DeleteFunc(sum, func(op faults.Op, _ int) bool {
		switch op {
		case otherCommand, faults.OpConnect, faults.OpHeartbeat, faults.OpClose, ownWatch, faults.OpRead:
			return true
		}
		return false
	})
	return sum
}

// others returns the number of commands other than scripts, summed over all
// sessions. Each new connection starts with a few such commands.
func (s *store) others() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.proxies {
		n += p.Frames(otherCommand)
	}
	return n
}

func (s *store) newClient() *dlock.Client {
	c := dlock.NewClient(s)
	s.t.Cleanup(func() { c.Close() })
	return c
}

func (s *store) waitForContenders(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.server.Do("ZCARD", s.key("q:stock/42")) == int64(n)
	}, 30*time.Second, time.Millisecond, "the queue never had %d contenders", n)
}

// takes checks that the function run makes exactly the wanted requests. It
// repeats slow runs, in which dlock may have retried requests that timed out.
func takes(t *testing.T, want map[faults.Op]int, run func(t *testing.T, s *store) (made map[faults.Op]int)) {
	t.Helper()
	const unlockTimeout = 2 * time.Second // the shortest timeout in package recipes
	for range 20 {
		began := time.Now()
		made := run(t, newStore(t, redistest.Shared(t), longTimeout))
		if maps.Equal(made, want) || time.Since(began) < unlockTimeout {
			require.Equal(t, want, made)
			return
		}
		t.Logf("once more: %v after %v", made, time.Since(began))
	}
	t.Error("the machine is too busy, or there are too many requests")
}

func TestAFreeLockTakesTwoRequests(t *testing.T) {
	takes(t, map[faults.Op]int{faults.OpCreate: 40, faults.OpDelete: 40}, freeLocks)
}

func TestOnceTakesTwoRequestsMoreThanItsLock(t *testing.T) {
	want := map[faults.Op]int{faults.OpCreate: 40, faults.OpValue: 40, faults.OpSetValue: 20, faults.OpDelete: 40}
	takes(t, want, func(t *testing.T, s *store) map[faults.Op]int {
		mutex := s.newClient().RWMutex("stock/42")
		_, err := mutex.Queue(t.Context()) // opens a connection
		require.NoError(t, err)
		lists, others := s.requests(), s.others()
		for range 20 {
			tick := time.Now()
			for _, want := range []bool{true, false} {
				ran, err := mutex.Once(t.Context(), tick, func(context.Context, *dlock.Lock) error { return nil })
				require.NoError(t, err)
				require.Equal(t, want, ran)
			}
		}
		return s.since(lists, others)
	})
}

func freeLocks(t *testing.T, s *store) map[faults.Op]int {
	mutex := s.newClient().RWMutex("stock/42")
	_, err := mutex.Queue(t.Context()) // opens a connection
	require.NoError(t, err)
	lists, others := s.requests(), s.others()
	for range 20 {
		lock, err := mutex.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lock.Unlock())
		reader, err := mutex.RLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, reader.Unlock())
	}
	return s.since(lists, others)
}

func TestLocksTakenTogetherTakeTheRequestsOfEach(t *testing.T) {
	takes(t, map[faults.Op]int{faults.OpCreate: 60, faults.OpDelete: 60}, func(t *testing.T, s *store) map[faults.Op]int {
		c := s.newClient()
		one, two, three := c.RWMutex("stock/1"), c.RWMutex("stock/2"), c.RWMutex("stock/3")
		lists, others := s.requests(), s.others()
		for range 20 {
			locks, err := dlock.LockAll(t.Context(), three, two.RLocker(), one)
			require.NoError(t, err)
			require.NoError(t, locks.Unlock())
		}
		made := s.since(lists, others)
		delete(made, otherCommand) // Unlock makes its requests concurrently and opens connections for them
		return made
	})
}

// For each new leader, the observer makes three requests: it lists the queue,
// watches the first node, and reads that node.
func TestAnObserverTakesThreeRequestsAndJoinsTakeNone(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	first, err := s.newClient().Election("stock/42").Campaign(t.Context())
	require.NoError(t, err)
	leaders := make(chan int64)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	observer := s.newClient()
	s.mu.Lock()
	before := maps.Clone(s.proxies)
	s.mu.Unlock()
	running.Go(func() {
		for leader, err := range observer.Election("stock/42").Observe(ctx) {
			if err != nil {
				return
			}
			leaders <- leader.Token
		}
	})
	require.Equal(t, first.Token(), <-leaders)
	s.mu.Lock()
	var proxy *redistest.Proxy
	for made, p := range s.proxies {
		if before[made] == nil {
			proxy = p // the observer's
		}
	}
	s.mu.Unlock()
	made := func() map[faults.Op]int {
		counts := make(map[faults.Op]int)
		for _, op := range []faults.Op{faults.OpList, ownWatch, faults.OpRead, faults.OpWatch, faults.OpWatchQueue, faults.OpCreate, faults.OpDelete} {
			if n := proxy.Frames(int32(op)); n > 0 {
				counts[op] = n
			}
		}
		return counts
	}
	once := map[faults.Op]int{faults.OpList: 1, ownWatch: 1, faults.OpRead: 1}
	require.Equal(t, once, made())
	terms := make(chan *dlock.Lock)
	for i := range 5 {
		e := s.newClient().Election("stock/42")
		running.Go(func() {
			term, err := e.Campaign(t.Context())
			if err != nil {
				t.Error(err)
			}
			terms <- term
		})
		s.waitForContenders(i + 2)
	}
	require.Equal(t, once, made(), "joins wake no observer")
	require.NoError(t, first.Unlock())
	term := <-terms
	require.Equal(t, term.Token(), <-leaders)
	require.Equal(t, map[faults.Op]int{faults.OpList: 2, ownWatch: 2, faults.OpRead: 2}, made())
	cancel()
	for range 4 {
		require.NoError(t, term.Unlock())
		term = <-terms
	}
	require.NoError(t, term.Unlock())
	running.Wait()
}

// since returns the numbers of requests made since an earlier count. That count
// is given by before for scripts and by others for all other commands, which
// the result has as otherCommand.
func (s *store) since(before map[faults.Op]int, others int) map[faults.Op]int {
	made := s.requests()
	for op := range made {
		made[op] -= before[op]
	}
	made[otherCommand] = s.others() - others
	maps.DeleteFunc(made, func(_ faults.Op, n int) bool { return n == 0 })
	return made
}

// inLine makes six clients wait for a lock held by a writer, and then releases
// it, so that each of them holds the lock in turn.
func inLine(t *testing.T, s *store, watchHolder int, lock func(context.Context, *dlock.RWMutex) (*dlock.Lock, error)) {
	t.Helper()
	holder, err := s.newClient().RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)
	var done sync.WaitGroup
	for i := range 6 {
		mutex := s.newClient().RWMutex("stock/42")
		done.Go(func() {
			held, err := lock(t.Context(), mutex)
			if err == nil {
				err = held.Unlock()
			}
			if err != nil {
				t.Error(err)
			}
		})
		s.waitForContenders(i + 2)
	}
	s.waitForWatchers(holder, watchHolder)
	require.NoError(t, holder.Unlock())
	done.Wait()
}

// waitForWatchers waits until n other contenders watch the holder's node.
func (s *store) waitForWatchers(holder *dlock.Lock, n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		lines, _ := s.server.Do("HGET", s.key("w:stock/42"), holder.Node()).(string)
		return strings.Count(lines, "\n")-strings.Count(lines, "/"+holder.Node()+"\n") == n
	}, 30*time.Second, time.Millisecond, "the holder never had %d waiters", n)
}

func TestAWaitingWriterTakesTwoRequests(t *testing.T) {
	takes(t, map[faults.Op]int{faults.OpCreate: 7, faults.OpDelete: 7}, func(t *testing.T, s *store) map[faults.Op]int {
		inLine(t, s, 1, func(ctx context.Context, m *dlock.RWMutex) (*dlock.Lock, error) { return m.Lock(ctx) })
		return s.requests()
	})
}

func TestAReaderThatWaitsBehindAReaderTakesThreeRequests(t *testing.T) {
	want := map[faults.Op]int{faults.OpCreate: 7, faults.OpWatch: 5, faults.OpDelete: 7}
	takes(t, want, func(t *testing.T, s *store) map[faults.Op]int {
		inLine(t, s, 6, func(ctx context.Context, m *dlock.RWMutex) (*dlock.Lock, error) { return m.RLock(ctx) })
		return s.requests()
	})
}

func TestAReaderAmongReadersTakesTwoRequests(t *testing.T) {
	takes(t, map[faults.Op]int{faults.OpCreate: 4, faults.OpDelete: 4}, func(t *testing.T, s *store) map[faults.Op]int {
		var locks []*dlock.Lock
		for range 4 {
			lock, err := s.newClient().RWMutex("stock/42").RLock(t.Context())
			require.NoError(t, err)
			locks = append(locks, lock)
		}
		for _, lock := range locks {
			require.NoError(t, lock.Unlock())
		}
		return s.requests()
	})
}

func TestAHandOverTakesTheReleaseOnly(t *testing.T) {
	takes(t, map[faults.Op]int{faults.OpDelete: 1}, handOver)
}

func handOver(t *testing.T, s *store) map[faults.Op]int {
	holder, err := s.newClient().RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)
	granted := make(chan *dlock.Lock, 1)
	mutex := s.newClient().RWMutex("stock/42")
	go func() {
		next, err := mutex.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		granted <- next
	}()
	s.waitForWatchers(holder, 1)
	before, others := s.requests(), s.others()
	require.NoError(t, holder.Unlock())
	next := <-granted
	made := s.since(before, others)
	require.NoError(t, next.Unlock())
	return made
}

func TestFreeUnitsTakeTwoRequests(t *testing.T) {
	takes(t, map[faults.Op]int{faults.OpCreate: 3, faults.OpDelete: 3}, func(t *testing.T, s *store) map[faults.Op]int {
		var locks []*dlock.Lock
		for range 3 {
			locks = append(locks, acquire(t, s.newClient(), 1))
		}
		for _, lock := range locks {
			require.NoError(t, lock.Unlock())
		}
		return s.requests()
	})
}

func acquire(t *testing.T, c *dlock.Client, weight int) *dlock.Lock {
	lock, err := c.Semaphore("stock/42", 3).Acquire(t.Context(), weight)
	require.NoError(t, err)
	return lock
}

// The first waiter watches both holders' nodes, which takes a request of its
// own. When granted its units, it lists the queue and renames its node, which
// wakes the second waiter.
func TestWaitersForUnitsTakeARequestForEachWakeUp(t *testing.T) {
	want := map[faults.Op]int{faults.OpCreate: 4, faults.OpWatch: 1, faults.OpList: 2, faults.OpReplace: 1, faults.OpDelete: 4}
	takes(t, want, func(t *testing.T, s *store) map[faults.Op]int {
		two, one := acquire(t, s.newClient(), 2), acquire(t, s.newClient(), 1)
		granted := make(chan *dlock.Lock, 2)
		for i := range 2 {
			semaphore := s.newClient().Semaphore("stock/42", 3)
			go func() {
				lock, err := semaphore.Acquire(t.Context(), 1)
				if err != nil {
					t.Error(err)
				}
				granted <- lock
			}()
			s.waitForContenders(3 + i)
		}
		require.Eventually(t, func() bool { return s.requests()[faults.OpWatch] == 1 }, 30*time.Second, time.Millisecond)
		require.NoError(t, two.Unlock())
		for _, lock := range []*dlock.Lock{<-granted, <-granted, one} {
			require.NoError(t, lock.Unlock())
		}
		return s.requests()
	})
}

// Wanted watches and lists the queue, and does so again after each change of
// the queue, until it finds a waiting contender.
func TestEachChangeOfTheQueueTakesTwoRequestsForWanted(t *testing.T) {
	want := map[faults.Op]int{faults.OpCreate: 3, faults.OpWatchQueue: 3, faults.OpList: 3}
	takes(t, want, func(t *testing.T, s *store) map[faults.Op]int {
		lock, err := s.newClient().RWMutex("stock/42").RLock(t.Context())
		require.NoError(t, err)
		s.mu.Lock()
		proxy := slices.Collect(maps.Values(s.proxies))[0] // the holder's
		s.mu.Unlock()
		untilListed := func(f func()) {
			hold := proxy.HoldReplies(func(op int32) bool { return op == int32(faults.OpList) })
			f()
			<-hold.Held()
			hold.Release()
		}
		var wanted <-chan struct{}
		untilListed(func() { wanted = lock.Wanted() })
		var beside *dlock.Lock
		untilListed(func() { beside, err = s.newClient().RWMutex("stock/42").RLock(t.Context()) })
		require.NoError(t, err)
		writer := make(chan *dlock.Lock, 1)
		waits := s.newClient().RWMutex("stock/42")
		go func() {
			next, err := waits.Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			writer <- next
		}()
		<-wanted
		made := s.requests()
		require.NoError(t, lock.Unlock())
		require.NoError(t, beside.Unlock())
		require.NoError(t, (<-writer).Unlock())
		return made
	})
}

// Each call must send a single command to Redis. The test counts all commands,
// not only those that run scripts.
func TestEachCallIsOneScript(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made, err := s.Connect(t.Context())
	require.NoError(t, err)
	_, err = made.List(t.Context(), "stock/42") // opens a connection
	require.NoError(t, err)
	p := s.proxy(made)
	waits := spec()
	waits.Predecessor = func(ahead []driver.Node) int { return len(ahead) - 1 }
	var first, second driver.Joined
	for _, c := range []struct {
		name   string
		script *redis.Script
		call   func() error
	}{
		{"Create", createScript, func() (err error) {
			first, err = made.Create(t.Context(), "stock/42", spec())
			return err
		}},
		{"Create with a watch", createScript, func() (err error) {
			second, err = made.Create(t.Context(), "stock/42", waits)
			return err
		}},
		{"List", lookScript, func() error {
			_, err := made.List(t.Context(), "stock/42")
			return err
		}},
		{"Read", readScript, func() error {
			_, err := driver.Inspect(made).Read(t.Context(), "stock/42", first.Name)
			return err
		}},
		{"Watch", watchScript, func() error {
			_, err := made.Watch(t.Context(), "stock/42", second.Place, first.Node)
			return err
		}},
		{"WatchQueue", watchQueueScript, func() error {
			_, err := made.WatchQueue(t.Context(), "stock/43")
			return err
		}},
		{"SetValue", setValueScript, func() error {
			return driver.Inspect(made).SetValue(t.Context(), "stock/42", first.Place, []byte("value"))
		}},
		{"Value", valueScript, func() error {
			_, _, err := driver.Inspect(made).Value(t.Context(), "stock/42")
			return err
		}},
		{"Replace", replaceScript, func() error {
			_, err := made.Replace(t.Context(), "stock/42", first.Place, "web-R-")
			return err
		}},
		{"Delete", deleteScript, func() error {
			return made.Delete(t.Context(), "stock/42", second.Place, driver.Changed)
		}},
		{"Remove", removeScript, func() error {
			first.Name = driver.FormatName("web-R-", first.Seq)
			return driver.Inspect(made).Remove(t.Context(), "stock/42", first.Place)
		}},
		{"a heartbeat", beatScript, func() error { return beat(t.Context(), made) }},
	} {
		p.Keep()
		require.NoError(t, c.call(), c.name)
		commands := p.Commands()
		require.Len(t, commands, 1, "%s: %q", c.name, commands)
		require.Equal(t, []string{"evalsha", c.script.Hash()}, commands[0][:2], c.name)
	}
	channels := s.server.Do("PUBSUB", "CHANNELS", s.key("*"))
	require.Equal(t, []any{s.key("c:" + inside(made).id)}, channels)
}

// The notice of a release also wakes the waiters of the session that releases.
func TestGoroutinesOfOneClientTakeTwoRequests(t *testing.T) {
	const goroutines, locks = 8, 25
	want := map[faults.Op]int{faults.OpCreate: goroutines * locks, faults.OpDelete: goroutines * locks}
	takes(t, want, func(t *testing.T, s *store) map[faults.Op]int {
		mutex := s.newClient().RWMutex("stock/42")
		var done sync.WaitGroup
		for range goroutines {
			done.Go(func() { lockOften(t, mutex, locks) })
		}
		done.Wait()
		return s.requests()
	})
}

func lockOften(t *testing.T, mutex *dlock.RWMutex, times int) {
	for range times {
		lock, err := mutex.Lock(t.Context())
		if err == nil {
			err = lock.Unlock()
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// A contender that races with a release needs additional requests, so the test
// limits only the total.
func TestContendersThatRaceTakeAboutTwoRequests(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	const sessions, locks = 8, 25
	var done sync.WaitGroup
	for range sessions {
		mutex := s.newClient().RWMutex("stock/42")
		done.Go(func() { lockOften(t, mutex, locks) })
	}
	done.Wait()
	sum := 0
	for _, n := range s.requests() {
		sum += n
	}
	t.Logf("%.2f requests for each lock: %v", float64(sum)/(sessions*locks), s.requests())
	require.LessOrEqual(t, float64(sum), 2.3*sessions*locks)
}

// A periodic check must read only the nodes that the session watches. If each
// of 1000 waiting sessions listed the whole queue, the server would do little
// else.
func TestALookAsksForTheWatchedNodesOnly(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made, err := s.Connect(t.Context())
	require.NoError(t, err)
	waits := spec()
	waits.Predecessor = func(ahead []driver.Node) int { return len(ahead) - 1 }
	for range 10 {
		_, err := made.Create(t.Context(), "stock/42", spec())
		require.NoError(t, err)
	}
	joined, err := made.Create(t.Context(), "stock/42", waits)
	require.NoError(t, err)
	s.proxy(made).Keep()
	s.proxy(made).DropConnections() // notices may be lost
	var look []string
	require.Eventually(t, func() bool {
		for _, c := range s.proxy(made).Commands() {
			if len(c) > 1 && c[1] == lookScript.Hash() {
				look = c
			}
		}
		return look != nil
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, []string{"stock/42", "2"}, look[5:7])
	require.ElementsMatch(t, []string{joined.Name, joined.Ahead[9].Name}, look[7:])
	require.Empty(t, joined.Watch.C)
}
