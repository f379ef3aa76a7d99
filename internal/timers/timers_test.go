package timers

import (
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func TestTimersFireOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set Set
		began := time.Now()
		fired := make(chan time.Duration, 10)
		after := func(d time.Duration) { set.AfterFunc(d, func() { fired <- time.Since(began) }) }
		for _, d := range []time.Duration{3, 1, 2, 2, 0, -1} { // the second one fires before the first one
			after(d * time.Second)
		}
		for _, want := range []time.Duration{0, 0, 1, 2, 2, 3} {
			assert.Equal(t, want*time.Second, <-fired)
		}
		after(time.Second) // when none is left, the next one sets the timer of the runtime again
		assert.Equal(t, 4*time.Second, <-fired)
	})
}

func TestAStoppedTimerDoesNotFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set Set
		var fired atomic.Int64
		count := func() { fired.Add(1) }
		first, second := set.AfterFunc(time.Second, count), set.AfterFunc(2*time.Second, count)
		first.Stop()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, fired.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, fired.Load(), "the timer after one that was stopped")
		second.Stop()
		assert.Empty(t, set.pending)
	})
}

func TestAFunctionMayUseItsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set Set
		began, done := time.Now(), make(chan time.Duration)
		other := set.AfterFunc(90*time.Minute, func() { t.Error("a timer that was stopped has fired") })
		set.AfterFunc(time.Second, func() {
			other.Stop()
			set.AfterFunc(time.Second, func() { done <- time.Since(began) })
		})
		assert.Equal(t, 2*time.Second, <-done)
		time.Sleep(2 * time.Hour)
	})
}

// Each lock sets timers of several lengths, and stops them soon.
func TestTimersThatAreStoppedSoonShareATimerOfTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set Set
		began := time.Now()
		for range 100 {
			short, long := set.AfterFunc(300*time.Millisecond, func() {}), set.AfterFunc(2*time.Second, func() {})
			assert.Equal(t, began.Add(300*time.Millisecond), set.next)
			time.Sleep(time.Millisecond)
			short.Stop()
			long.Stop()
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		assert.Zero(t, set.next, "no timer is left, so the timer of the runtime is not set again")
	})
}

func TestManyGoroutinesUseASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set Set
		var fired atomic.Int64
		for i := range 50 {
			d := time.Duration(i+1) * time.Second
			go func() {
				for range 100 {
					stopped := set.AfterFunc(d, func() { t.Error("a timer that was stopped has fired") })
					set.AfterFunc(d, func() { fired.Add(1) })
					stopped.Stop()
				}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 50*100, fired.Load())
	})
}
