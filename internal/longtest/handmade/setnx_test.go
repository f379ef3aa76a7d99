package handmade

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// The locks in this file are the stages in which locks on Redis usually evolve.

// errNotHeld is returned by an unlock that finds the lock lost.
var errNotHeld = errors.New("another process has the lock")

// A redisKey is what the locks of all stages have in common: whoever sets the
// key holds the lock.
type redisKey struct {
	*redis.Client
	key    string
	expiry time.Duration
	points *points
}

func newRedisKey(s setting, p *points) redisKey {
	server := redis.NewClient(&redis.Options{Addr: s.Servers[0], MaxRetries: -1, ReadTimeout: bound})
	return redisKey{server, "lock:42", s.Expiry, p}
}

// retry calls try, with pauses in between, until it returns true or an error.
func (k redisKey) retry(try func() (bool, error)) (token int64, err error) {
	for {
		if ok, err := try(); ok || err != nil {
			return 0, err
		}
		k.points.refused()
	}
}

func (k redisKey) check() error { return nil } // only a request would reveal a loss

func (k redisKey) unlock(ctx context.Context) error { return k.Del(ctx, k.key).Err() }

// A setnx is stage 1: SETNX, and DEL to unlock. It excludes others, but a
// holder that dies leaves the key for ever.
type setnx struct{ redisKey }

func newSetnx(s setting, p *points) (locker, error) { return setnx{newRedisKey(s, p)}, nil }

func (l setnx) lock(ctx context.Context) (int64, error) {
	return l.retry(func() (bool, error) { return l.Do(ctx, "SETNX", l.key, 1).Bool() })
}

// A setnxExpire is stage 2: SETNX, then EXPIRE. A dead holder's key expires,
// unless the process died between the two.
type setnxExpire struct{ redisKey }

func newSetnxExpire(s setting, p *points) (locker, error) {
	return setnxExpire{newRedisKey(s, p)}, nil
}

func (l setnxExpire) lock(ctx context.Context) (int64, error) {
	return l.retry(func() (bool, error) {
		ok, err := l.Do(ctx, "SETNX", l.key, 1).Bool()
		if err != nil || !ok {
			return false, err
		}
		l.points.reach("EXPIRE")
		return l.Expire(ctx, l.key, l.expiry).Result()
	})
}

// setNX sets a key together with its expiry, and reports whether the key was
// absent.
func setNX(ctx context.Context, server *redis.Client, key, value string, expiry time.Duration) (bool, error) {
	err := server.SetArgs(ctx, key, value, redis.SetArgs{Mode: "NX", TTL: expiry}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// A setWithExpiry is stage 3: SET NX PX, and DEL to unlock. The key of a dead
// holder always expires. So does the key of a slow holder, which then deletes
// the next holder's key.
type setWithExpiry struct{ redisKey }

func newSetWithExpiry(s setting, p *points) (locker, error) {
	return setWithExpiry{newRedisKey(s, p)}, nil
}

func (l setWithExpiry) lock(ctx context.Context) (int64, error) {
	return l.retry(func() (bool, error) { return setNX(ctx, l.Client, l.key, "1", l.expiry) })
}

// A comparedByClient is stage 4 as it is often written: the key has a random
// value, which the holder compares before it deletes the key. Between the two
// steps the key may expire and be set by another process.
type comparedByClient struct {
	redisKey
	value string
}

func newComparedByClient(s setting, p *points) (locker, error) {
	return comparedByClient{newRedisKey(s, p), rand.Text()}, nil
}

func (l comparedByClient) lock(ctx context.Context) (int64, error) {
	return l.retry(func() (bool, error) { return setNX(ctx, l.Client, l.key, l.value, l.expiry) })
}

func (l comparedByClient) unlock(ctx context.Context) error {
	value, err := l.Get(ctx, l.key).Result()
	if err != nil {
		return err
	}
	if value != l.value {
		return errNotHeld
	}
	l.points.reach("DEL")
	return l.Del(ctx, l.key).Err()
}

// A comparedByScript is stage 4 done right: a script compares and deletes in
// one step, so that no process deletes another's key. Yet a holder does not
// notice that its lock has expired, and a random value is no token, because it
// has no order.
type comparedByScript struct{ comparedByClient }

var compareAndDelete = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

func newComparedByScript(s setting, p *points) (locker, error) {
	return comparedByScript{comparedByClient{newRedisKey(s, p), rand.Text()}}, nil
}

func (l comparedByScript) unlock(ctx context.Context) error {
	n, err := compareAndDelete.Run(ctx, l, []string{l.key}, l.value).Int()
	if err == nil && n == 0 {
		err = errNotHeld
	}
	return err
}

// A watched is stage 5: a watchdog goroutine extends the expiry during long
// work. A pause stops the watchdog too, and afterwards the process may write
// before the watchdog has run.
type watched struct {
	comparedByScript
	stop context.CancelFunc
	lost atomic.Bool
}

var compareAndExpire = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0`)

func newWatched(s setting, p *points) (locker, error) {
	return &watched{comparedByScript: comparedByScript{comparedByClient{newRedisKey(s, p), rand.Text()}}}, nil
}

func (l *watched) lock(ctx context.Context) (int64, error) {
	if _, err := l.comparedByScript.lock(ctx); err != nil {
		return 0, err
	}
	ctx, l.stop = context.WithCancel(ctx)
	go l.watch(ctx)
	return 0, nil
}

func (l *watched) watch(ctx context.Context) {
	for ticker := time.NewTicker(l.expiry / 3); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			n, err := compareAndExpire.Run(ctx, l, []string{l.key}, l.value, l.expiry.Milliseconds()).Int()
			if err == nil && n == 0 {
				l.lost.Store(true)
				return
			}
		}
	}
}

func (l *watched) check() error {
	if l.lost.Load() {
		return errNotHeld
	}
	return nil
}

func (l *watched) unlock(ctx context.Context) error {
	l.stop()
	return l.comparedByScript.unlock(ctx)
}

// A watchedUntilUnlocked is stage 5 with a bug: only a successful unlock stops
// the watchdog.
type watchedUntilUnlocked struct{ watched }

func newWatchedUntilUnlocked(s setting, p *points) (locker, error) {
	l := &watchedUntilUnlocked{}
	l.comparedByScript = comparedByScript{comparedByClient{newRedisKey(s, p), rand.Text()}}
	return l, nil
}

func (l *watchedUntilUnlocked) unlock(ctx context.Context) error {
	err := l.comparedByScript.unlock(ctx)
	if err == nil {
		l.stop()
	}
	return err
}

func useRedis(server *redistest.Server, lock string, expiry time.Duration) setting {
	return setting{Lock: lock, Servers: []string{server.Addr()}, Expiry: expiry}
}

func dlockOnRedis(server *redistest.Server) setting {
	return useDlock("redis", "redis://"+server.Addr()+"?empty_is_new=true&session_timeout="+sessionTimeout.String())
}

const (
	soon  = 500 * time.Millisecond
	never = time.Hour // longer than any test
)

// TestSetnxOutlivesItsHolder is stage 1: the holder is killed, and the key
// stays.
func TestSetnxOutlivesItsHolder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	t.Run("by hand", func(t *testing.T) {
		requireDeadHolderBlocks(t, useRedis(server, "setnx", 0), func(a *process) { a.lock() })
		require.Equal(t, int64(-1), server.Do("TTL", "lock:42"), "the key never expires")
	})
	t.Run("dlock", func(t *testing.T) { requireDeadHolderIsReplaced(t, dlockOnRedis(server)) })
}

// TestSetnxThenExpire is stage 2: the process is killed before it sends EXPIRE.
// dlock has no such window, because a node belongs to a session, which has a
// deadline from its first request on.
func TestSetnxThenExpire(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	requireDeadHolderBlocks(t, useRedis(server, "setnx, expire", soon), func(a *process) {
		a.stopAt("EXPIRE")
		a.order("lock")
		a.at("EXPIRE")
	})
	require.Equal(t, int64(-1), server.Do("TTL", "lock:42"), "the key never expires")
}

// TestAPausedHolderOfAKey stops the holder in each stage with an expiry. The
// holder's late write always reaches the resource. In the stages that use a
// script, its late unlock is harmless.
func TestAPausedHolderOfAKey(t *testing.T) {
	t.Parallel()
	for lock, thirdOne := range map[string]bool{
		"setnx, expire":    true,
		"set nx px":        true,
		"get, del":         false, // harmless in this test; see TestGetThenDelOfAKey for the bad case
		"script":           false,
		"script, watchdog": false,
	} {
		t.Run(lock, func(t *testing.T) {
			server := redistest.Start(t)
			came := pausedHolder(t, useRedis(server, lock, soon), useRedis(server, lock, never))
			require.True(t, came.lateWrite)
			require.Equal(t, thirdOne, came.thirdOne)
			if lock != "script, watchdog" { // with a watchdog, it depends on which goroutine runs first
				require.False(t, came.told)
			}
		})
	}
	t.Run("dlock", func(t *testing.T) {
		s := dlockOnRedis(redistest.Start(t))
		require.Equal(t, pause{told: true, lateWrite: false, thirdOne: false}, pausedHolder(t, s, s))
	})
}

// TestAHolderOfAKeyThatWorksForLong has a holder whose work takes longer than
// the expiry. It notices the loss when it unlocks, or never. A watchdog solves
// this.
func TestAHolderOfAKeyThatWorksForLong(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"set nx px", "script"} {
		t.Run(lock, func(t *testing.T) {
			server := redistest.Start(t)
			a, b := start(t, "A", useRedis(server, lock, soon)), start(t, "B", useRedis(server, lock, never))
			a.lock()
			b.lock()
			require.NoError(t, a.check(), "two holders")
			if lock == "script" {
				require.ErrorContains(t, a.unlock(), errNotHeld.Error())
			} else {
				require.NoError(t, a.unlock(), "A has deleted the key of B, and does not know")
			}
		})
	}
	t.Run("dlock", func(t *testing.T) { requireLongWork(t, dlockOnRedis(redistest.Start(t))) })
}

// TestAWatchdogOutlivesTheWork is stage 5: the network fails while the holder
// unlocks. Its watchdog then extends the key for as long as the process lives.
// A dlock client, in contrast, keeps trying to remove its node.
func TestAWatchdogOutlivesTheWork(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := testenv.NewProxy(t, server.Addr(), nil)
	failToUnlock := func(t *testing.T, a *process) {
		proxy.Refuse()
		proxy.DropConnections()
		require.Error(t, a.unlock())
		proxy.Heal()
	}
	t.Run("by hand", func(t *testing.T) {
		s := useRedis(server, "script, watchdog until unlocked", 6*time.Second)
		b := start(t, "B", s)
		s.Servers = []string{proxy.Addr()}
		a := start(t, "A", s)
		a.lock()
		b.contend()
		value := server.Do("GET", "lock:42")
		failToUnlock(t, a)
		for range 2 { // no end in sight
			last := server.Do("PTTL", "lock:42").(int64)
			require.Eventually(t, func() bool {
				left := server.Do("PTTL", "lock:42").(int64)
				extended := left > last
				last = left
				return extended
			}, bound, 10*time.Millisecond, "the key is not extended")
			require.Equal(t, value, server.Do("GET", "lock:42"), "A has lost the lock")
		}
		a.kill()
		b.granted()
	})
	t.Run("dlock", func(t *testing.T) {
		const long = "?empty_is_new=true&session_timeout=10m" // A's session must not end
		a := start(t, "A", useDlock("redis", "redis://"+proxy.Addr()+long))
		b := start(t, "B", useDlock("redis", "redis://"+server.Addr()+long))
		first := a.lock()
		b.contend()
		failToUnlock(t, a)
		require.Greater(t, b.granted(), first)
	})
}

// TestGetThenDelOfAKey is stage 4 without a script: the key expires after the
// holder has compared its value, so that the holder deletes another process's
// key. With a script, there is no such gap.
func TestGetThenDelOfAKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const lock = "get, del"
	s := useRedis(server, lock, never)
	a, b, c := start(t, "A", s), start(t, "B", s), start(t, "C", s)
	a.stopAt("DEL")
	a.lock()
	a.order("unlock")
	a.at("DEL")
	server.Do("PEXPIRE", "lock:42", "1") // stands for the expiry
	b.lock()
	a.goOn()
	require.Equal(t, "unlocked", a.answer())
	c.lock()
	require.NoError(t, b.check(), "two holders")
}

// TestAKeyHasNoOrder shows, for the first and the last stage, that a later
// contender can overtake an earlier one.
func TestAKeyHasNoOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, lock := range []string{"setnx", "script, watchdog"} {
		t.Run(lock, func(t *testing.T) {
			requireOvertaken(t, useRedis(server, lock, never))
			server.Do("DEL", "lock:42")
		})
	}
	t.Run("dlock", func(t *testing.T) { requireOrder(t, dlockOnRedis(server)) })
}

// TestAPromotedReplicaHasNoKey promotes a replica that has not received the
// key, so that two processes hold the lock. TestNoTwoHoldersIfALaggingReplicaIsPromoted
// in contrib/redisdriver shows that dlock has one holder.
func TestAPromotedReplicaHasNoKey(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t)
	replication := testenv.NewProxy(t, master.Addr(), nil)
	replica.Do("REPLICAOF", "127.0.0.1", replication.Port())
	require.Eventually(t, func() bool {
		role, _ := replica.Do("ROLE").([]any)
		return len(role) > 3 && role[3] == "connected"
	}, bound, 5*time.Millisecond)
	const lock = "script, watchdog"
	a, b := start(t, "A", useRedis(master, lock, never)), start(t, "B", useRedis(replica, lock, never))

	replication.Cut() // make the replica lag
	a.lock()
	master.Kill()
	replica.Do("REPLICAOF", "NO", "ONE")
	b.lock()
	require.NoError(t, a.check(), "two holders")
	var r resource
	require.NoError(t, b.write(&r))
	require.NoError(t, a.write(&r))
}
