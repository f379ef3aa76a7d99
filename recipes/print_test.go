package recipes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

// The race detector reports a String method that reads a field without its
// mutex.
func TestPrintingDisturbsNothing(t *testing.T) {
	c := recipes.NewClient(memdriver.New())
	defer c.Close()
	m := c.RWMutex("q")
	var users sync.WaitGroup
	print := func(stop <-chan struct{}, v any) {
		for {
			fmt.Fprintf(io.Discard, "%v %+v %#v %s\n", v, v, v, v)
			select {
			case <-stop:
				return
			default:
			}
		}
	}
	done := make(chan struct{})
	users.Go(func() { print(done, c) })
	users.Go(func() { print(done, m) })
	for range 50 {
		l, err := m.Lock(bg)
		if err != nil {
			t.Error(err)
			break
		}
		unlocked := make(chan struct{})
		users.Go(func() { print(unlocked, l) })
		inner, err := m.RLock(l.Context(context.Background()))
		if err == nil {
			err = l.Downgrade(bg)
		}
		if err != nil {
			t.Error(err)
		}
		_ = inner.Unlock()
		_ = l.Unlock()
		close(unlocked)
	}
	close(done)
	users.Wait()
}

func TestALockShowsItsState(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		for _, verb := range []string{"%v", "%+v", "%s"} {
			assert.Equal(w, "q: exclusive, a-W-0000000000, token 1, held", fmt.Sprintf(verb, l))
			assert.Equal(w, "q", fmt.Sprintf(verb, c.RWMutex("q")))
		}
		assert.Equal(w, "dlock.Lock(q: exclusive, a-W-0000000000, token 1, held)", fmt.Sprintf("%#v", l))
		assert.Equal(w, "dlock.RWMutex(q)", fmt.Sprintf("%#v", c.RWMutex("q")))
		assert.Equal(w, `"q\x1b"`, c.RWMutex("q\x1b").String())

		require.NoError(w, l.Downgrade(bg))
		assert.Equal(w, "q: shared, a-R-0000000000, token 1, held", l.String())
		w.unlock(l)
		assert.Equal(w, "q: shared, a-R-0000000000, token 1, unlocked", l.String())

		l = w.won(c.lock(bg))
		w.store.Faults().Expire(c.session())
		synctest.Wait()
		assert.Equal(w, "q: exclusive, a-W-0000000001, token 2, lost", l.String())
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		assert.Equal(w, "q: exclusive, a-W-0000000001, token 2, lost", l.String())

		assert.Equal(w, "no lock", new(recipes.Lock).String())
	})
}

func TestAClientShowsItsSession(t *testing.T) {
	inWorld(t, func(w *world) {
		c := recipes.NewClient(w.store)
		assert.Equal(w, "not connected", c.String())
		require.NoError(w, c.Ping(bg))
		assert.Equal(w, "session session-1, server memory, timeout 10s", fmt.Sprintf("%+v", c))
		assert.Equal(w, "dlock.Client(session session-1, server memory, timeout 10s)", fmt.Sprintf("%#v", c))
		require.NoError(w, c.Close())
		assert.Equal(w, "closed", c.String())
	})
}

func TestAModeIsText(t *testing.T) {
	type settings struct{ Mode, None recipes.Mode }
	text, err := json.Marshal(settings{Mode: recipes.Exclusive})
	require.NoError(t, err)
	assert.JSONEq(t, `{"Mode": "exclusive", "None": ""}`, string(text))
	var got settings
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, settings{Mode: recipes.Exclusive}, got)

	for _, m := range []recipes.Mode{recipes.Shared, recipes.Exclusive} {
		parsed, err := recipes.ParseMode(m.String())
		require.NoError(t, err)
		assert.Equal(t, m, parsed)
	}
	for _, s := range []string{"", "Shared", "no mode", "1"} {
		_, err := recipes.ParseMode(s)
		assert.ErrorContains(t, err, `(want "shared" or "exclusive")`, s)
	}
	require.Error(t, json.Unmarshal([]byte(`{"Mode": "both"}`), &got))
	_, err = json.Marshal(recipes.Mode(7))
	assert.ErrorContains(t, err, "is no mode of a lock")
}

func TestAContenderShowsWhereAndSinceWhen(t *testing.T) {
	inWorld(t, func(w *world) {
		c, other := w.client("web/1", recipes.WithData([]byte("order 42"))), w.client("b")
		asked := time.Now()
		held := w.won(c.lock(bg))
		time.Sleep(2 * time.Second)
		waiting := other.rlock(bg)
		time.Sleep(time.Second)

		queue, err := c.RWMutex("q").Queue(bg)
		require.NoError(w, err)
		require.Len(w, queue, 2)
		assert.Equal(w, "web%2F1", queue[0].Host)
		assert.Equal(w, held.Node(), queue[0].Node)
		assert.Equal(w, held.Token(), queue[0].Token)
		assert.Equal(w, []bool{true, false}, []bool{queue[0].Holds, queue[1].Holds})
		assert.Equal(w, "order 42", queue[0].Record.Data)
		assert.True(w, asked.Equal(queue[0].Record.Since))
		assert.NotEqual(w, queue[0].Record.ID, queue[1].Record.ID)
		assert.NotEmpty(w, queue[0].Owner)
		assert.Equal(w, recipes.Exclusive, queue[0].Mode)
		assert.True(w, asked.Equal(queue[0].Created))
		assert.True(w, asked.Equal(queue[0].HeldSince))
		assert.Equal(w, "b", queue[1].Host)
		assert.Equal(w, recipes.Shared, queue[1].Mode)
		assert.True(w, asked.Add(2*time.Second).Equal(queue[1].Created))
		assert.Zero(w, queue[1].HeldSince)
		since := asked.Format(time.RFC3339Nano)
		assert.Contains(w, queue[0].String(), "web%2F1-W-0000000000 holds, exclusive, host web%2F1, token 1, session ")
		assert.Contains(w, queue[0].String(), ", created "+since+", held by this client since "+since+", pid ")
		assert.NotContains(w, queue[1].String(), "held by this client")

		queue, err = other.RWMutex("q").Queue(bg)
		require.NoError(w, err)
		assert.Zero(w, queue[0].HeldSince, "HeldSince is known only to the client that holds the lock")

		require.NoError(w, held.Downgrade(bg))
		queue, err = c.RWMutex("q").Queue(bg)
		require.NoError(w, err)
		assert.True(w, asked.Equal(queue[0].HeldSince), "a downgrade keeps HeldSince")
		w.unlock(held, w.won(waiting))
	})
}

func TestAForeignContenderHasNoHost(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		s, err := w.store.Connect(bg)
		require.NoError(w, err)
		defer s.Close()
		_, err = s.Create(bg, "q", driver.NodeSpec{Prefix: "other-X-", Data: []byte("{}")})
		require.NoError(w, err)
		queue, err := c.RWMutex("q").Queue(bg)
		require.NoError(w, err)
		assert.Empty(w, queue[0].Host)
		assert.NotContains(w, queue[0].String(), "host")
	})
}
