package redisdriver

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// The tests in this file change the system clock of a Redis server.

func withClock(t *testing.T, params string) *store {
	redistest.RequireClock(t)
	return newStore(t, redistest.Start(t, redistest.WithClock()), params)
}

// leftOf returns how long the session with a node lasts by the server's clock.
func (s *store) leftOf(t *testing.T) time.Duration {
	t.Helper()
	left := s.eval(t, `for _, x in ipairs(redis.call('ZRANGE', sessions, 0, -1)) do
		if redis.call('HLEN', P .. 's:' .. x) > 0 then return redis.call('ZSCORE', sessions, x) - now end
	end`, "")
	micros, ok := left.(int64)
	require.True(t, ok, "no session has a node: %v", left)
	return time.Duration(micros) * time.Microsecond
}

func TestAStepBackUnderLoad(t *testing.T) {
	t.Parallel()
	s := withClock(t, "session_timeout=3s")
	var holders history.Holders
	defer holders.Load(t, 4, func() (*dlock.Client, error) { return s.newClient(), nil })()
	for step := range 5 {
		holders.Await(t)
		s.server.SetClock(-time.Duration(step) * time.Hour)
	}
	holders.Await(t)
}

// Setting the clock back prolongs a dead process's lock until the clock has
// caught up.
func TestAStepBackKeepsTheLocksOfTheDead(t *testing.T) {
	t.Parallel()
	s := withClock(t, "session_timeout=1s")
	dead, before := s.join(t, "stock/42")
	s.proxy(dead).Cut()
	defer s.proxy(dead).Heal()
	s.server.SetClock(-time.Hour)
	require.Greater(t, s.leftOf(t), 30*time.Minute)

	mutex := s.newClient().RWMutex("stock/42")
	granted := testenv.LockLater(t, mutex)
	s.waitForContenders(2)
	require.Empty(t, granted)
	s.server.SetClock(0)
	next := <-granted
	require.Greater(t, next.Token(), before.Token)
	require.NoError(t, next.Unlock())
}

// A forward jump may end the session of a live holder that is disconnected.
func TestAStepForwardMakesTwoHolders(t *testing.T) {
	t.Parallel()
	s := withClock(t, longTimeout)
	holder := s.lock()
	heal := s.cutFirst()
	s.server.SetClock(time.Hour)
	next := s.lock()
	require.NoError(t, holder.Err(), "the holder knows of its loss")
	require.NoError(t, next.Err())
	require.Greater(t, next.Token(), holder.Token())
	heal()
	require.Error(t, holder.Unlock())
	require.Equal(t, int64(1), s.server.Do("ZCARD", s.key("q:stock/42")))
	require.NoError(t, next.Unlock())
}

// The holder must learn of the step even if the program makes no request.
func TestAHolderLearnsOfAStepForward(t *testing.T) {
	t.Parallel()
	s := withClock(t, "session_timeout=8s")
	holder := s.lock()
	mutex := s.newClient().RWMutex("stock/42")
	granted := testenv.LockLater(t, mutex)
	s.waitForWatchers(holder, 1)
	s.server.SetClock(time.Hour)
	<-holder.Lost()
	require.ErrorIs(t, holder.Err(), dlock.ErrLost)
	next := <-granted
	require.Greater(t, next.Token(), holder.Token())
	ahead, err := strconv.ParseInt(s.server.Do("GET", s.key("seq")).(string), 10, 64)
	require.NoError(t, err)
	require.Greater(t, time.Until(time.UnixMicro(ahead)), 30*time.Minute)
	require.NoError(t, next.Unlock())

	s.server.SetClock(0)
	last := s.lock()
	require.Greater(t, last.Token(), next.Token())
	require.NoError(t, last.Unlock())
}
