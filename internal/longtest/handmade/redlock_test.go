package handmade

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// A redlock is the lock of [comparedByScript] on several independent Redis
// masters. A process holds it if it has set the key on a majority of them in
// time. The lock survives the loss of a minority.
//
// It breaks if a master forgets a key early, by a restart without its data or a
// jump of its clock, because then two processes can have a majority. Like any
// lock without tokens, it also breaks when its holder pauses.
type redlock struct {
	masters []*redis.Client
	value   string
	expiry  time.Duration
	until   time.Time // end of validity
	points  *points
}

func newRedlock(s setting, p *points) (locker, error) {
	l := &redlock{value: rand.Text(), expiry: s.Expiry, points: p}
	for _, addr := range s.Servers {
		const limit = 2 * time.Second // for a master that does not answer
		l.masters = append(l.masters, redis.NewClient(&redis.Options{
			Addr: addr, MaxRetries: -1, DialTimeout: limit, ReadTimeout: limit, WriteTimeout: limit,
		}))
	}
	return l, nil
}

func (l *redlock) lock(ctx context.Context) (int64, error) {
	for {
		began := time.Now()
		set := l.onEach(func(master *redis.Client) bool {
			ok, err := setNX(ctx, master, "lock:42", l.value, l.expiry)
			return ok && err == nil
		})
		drift := l.expiry/100 + 2*time.Millisecond
		l.until = began.Add(l.expiry - drift)
		if set > len(l.masters)/2 && time.Now().Before(l.until) {
			return 0, nil
		}
		_ = l.unlock(ctx)
		l.points.refused()
	}
}

func (l *redlock) onEach(ask func(*redis.Client) bool) (n int) {
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, master := range l.masters {
		asked.Go(func() {
			ok := ask(master)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				n++
			}
		})
	}
	asked.Wait()
	return n
}

func (l *redlock) check() error {
	if !time.Now().Before(l.until) {
		return errors.New("the lock is not valid any more")
	}
	return nil
}

func (l *redlock) unlock(ctx context.Context) error {
	l.onEach(func(master *redis.Client) bool {
		return compareAndDelete.Run(ctx, master, []string{"lock:42"}, l.value).Err() == nil
	})
	return nil
}

func masters(t testing.TB, expiry time.Duration) ([]*redistest.Server, setting) {
	s := setting{Lock: "redlock", Expiry: expiry}
	var servers []*redistest.Server
	for range 5 {
		servers = append(servers, redistest.Start(t))
		s.Servers = append(s.Servers, servers[len(servers)-1].Addr())
	}
	return servers, s
}

// TestRedlockWithTwoMajorities lets A set the key on masters 1, 2 and 3, while
// 4 and 5 do not answer it. Then master 3 forgets the key, and B sets it on 3,
// 4 and 5.
func TestRedlockWithTwoMajorities(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(t *testing.T, third *redistest.Server){
		"a restart without the data": func(_ *testing.T, third *redistest.Server) {
			third.Kill()
			third.Restart()
		},
		"a clock that jumps": func(t *testing.T, third *redistest.Server) { // moves the key's expiry instead of the clock
			require.Equal(t, int64(1), third.Do("PEXPIREAT", "lock:42", "1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, s := masters(t, never)
			cut := s
			cut.Servers = append([]string(nil), s.Servers...)
			for i := 3; i < 5; i++ {
				network := testenv.NewProxy(t, servers[i].Addr(), nil)
				network.Cut()
				cut.Servers[i] = network.Addr()
			}
			a, b := start(t, "A", cut), start(t, "B", s)
			var r resource
			a.lock()
			forget(t, servers[2])
			b.lock()
			require.NoError(t, a.check(), "two holders")
			require.NoError(t, b.write(&r))
			require.NoError(t, a.write(&r), "the resource cannot tell them apart")
		})
	}
	// A jump of the clock is the topic of TestAStepForwardMakesTwoHolders in
	// contrib/redisdriver.
	t.Run("dlock on one master that forgets", func(t *testing.T) {
		server := redistest.Start(t)
		s := useDlock("redis", "redis://"+server.Addr()+"?session_timeout="+sessionTimeout.String())
		a, b := start(t, "A", s), start(t, "B", s)
		first := a.lock()
		b.contend()
		forget(server)
		require.Greater(t, b.granted(), first)
		require.Error(t, a.check(), "two holders")
	})
}

// TestAPausedHolderOfRedlock pauses the holder between its check of the lock
// and its write. Another check would show that the lock has expired, but the
// holder writes without one. TestAPausedHolderOfAKey does the same with dlock.
func TestAPausedHolderOfRedlock(t *testing.T) {
	t.Parallel()
	_, long := masters(t, never)
	short := long
	short.Expiry = 3 * time.Second
	require.Equal(t, pause{told: true, lateWrite: true, thirdOne: false}, pausedHolder(t, short, long))
}

// TestRedlockWithoutAMajority takes down one of five masters and lets two
// processes set the key on two masters each. Neither has a majority, so both
// have to start over, and chance decides which one wins.
func TestRedlockWithoutAMajority(t *testing.T) {
	t.Parallel()
	servers, s := masters(t, never)
	servers[4].Kill()
	for i, value := range []string{"another", "another"} { // another process, also halfway
		servers[i].Do("SET", "lock:42", value)
	}
	b := start(t, "B", s)
	b.stopAt("retry")
	b.contend()
	b.at("retry")
	require.Equal(t, int64(0), servers[2].Do("EXISTS", "lock:42"), "B has given up the minority that it had")
}
