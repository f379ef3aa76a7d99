package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/reason"
	"github.com/dlock-go/dlock/recipes"
)

func captureDefault(t *testing.T) *safeBuffer {
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	text := new(safeBuffer)
	slog.SetDefault(slog.New(slog.NewTextHandler(text, nil)))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(out) // SetDefault has changed the output and the flags
		log.SetFlags(flags)
	})
	return text
}

var (
	refuses = connectorFunc(func(context.Context) (driver.Session, error) {
		return nil, fmt.Errorf("%w: connect to zk1:2181: refused", driver.ErrUnavailable)
	})
	waits = connectorFunc(func(ctx context.Context) (driver.Session, error) {
		reason.Tell(ctx, fmt.Errorf("%w: no lock is granted until noon", driver.ErrUnavailable))
		<-ctx.Done()
		return nil, errors.Join(driver.ErrUnavailable, ctx.Err())
	})
	hangs = connectorFunc(func(ctx context.Context) (driver.Session, error) {
		<-ctx.Done()
		return nil, errors.Join(driver.ErrUnavailable, ctx.Err())
	})
)

const silence = `level=WARN msg="dlock: still no session with the store" waited=5s error="store unavailable: `

func TestAStoreThatNeverAnsweredIsReportedOnce(t *testing.T) {
	for name, connector := range map[string]connectorFunc{"connect to zk1:2181: refused": refuses, "no answer": hangs, "no lock is granted until noon": waits} {
		log := captureDefault(t)
		inWorld(t, func(w *world) {
			c := w.connecting(connector)
			first, second := c.lock(bg), c.rlock(bg)
			time.Sleep(5*time.Second - 1)
			w.waits(first)
			assert.Empty(w, log.String())
			time.Sleep(time.Nanosecond)
			w.waits(second)
			assert.Contains(w, log.String(), silence+name+"\"\n")
			time.Sleep(20 * time.Second)
			_, err := c.RWMutex("other").TryLock(bg)
			require.ErrorIs(w, err, driver.ErrUnavailable)
			assert.Equal(w, 1, strings.Count(log.String(), "\n"))
			require.NoError(w, c.Close())
			require.Error(w, w.failed(first))
		})
	}
}

func TestPingAndQueueReportASilentStore(t *testing.T) {
	for name, call := range map[string]func(*client) error{
		"ping":  func(c *client) error { return c.Ping(bg) },
		"queue": func(c *client) error { _, err := c.RWMutex("q").Queue(bg); return err },
	} {
		t.Run(name, func(t *testing.T) {
			log := captureDefault(t)
			inWorld(t, func(w *world) {
				c := w.connecting(hangs)
				require.ErrorIs(w, call(c), driver.ErrUnavailable)
				assert.Contains(w, log.String(), silence)
			})
		})
	}
}

func TestALoggerGetsTheReportOfASilentStore(t *testing.T) {
	standard := captureDefault(t)
	inWorld(t, func(w *world) {
		var log safeBuffer
		logs, discards := w.connecting(hangs, logTo(&log)), w.connecting(hangs, recipes.WithLogger(nil))
		first, second := logs.lock(bg), discards.lock(bg)
		time.Sleep(6 * time.Second)
		w.waits(first)
		w.waits(second)
		assert.Equal(w, 1, strings.Count(log.String(), silence))
		assert.Empty(w, standard.String())
		require.NoError(w, logs.Close())
		require.NoError(w, discards.Close())
		require.Error(w, w.failed(first))
		require.Error(w, w.failed(second))
	})
}

func TestNothingIsReportedOnceTheStoreHasAnswered(t *testing.T) {
	log := captureDefault(t)
	inWorld(t, func(w *world) {
		c := w.client("a")
		up := w.store.Faults().Down()
		time.Sleep(time.Minute) // wait until the session has ended
		call := c.lock(bg)
		time.Sleep(20 * time.Second)
		w.waits(call)
		up()
		time.Sleep(5 * time.Second)
		w.unlock(w.won(call))
	})
	inWorld(t, func(w *world) { // calls too short for a warning
		c := w.connecting(hangs)
		for range 10 {
			ctx, cancel := context.WithTimeout(bg, 4*time.Second)
			_, err := c.RWMutex("q").Lock(ctx)
			cancel()
			require.ErrorIs(w, err, recipes.ErrTimeout)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
	assert.Empty(t, log.String())
}
