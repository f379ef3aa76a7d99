package gocrondlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/gocrondlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/memdriver"
)

var (
	_ gocron.Locker  = (*gocrondlock.Locker)(nil)
	_ gocron.Elector = (*gocrondlock.Elector)(nil)
)

var bg = context.Background()

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(leakcheck.After(m.Run()))
}

// inTime runs a test in virtual time, and checks that no node is left.
func inTime(t *testing.T, f func(t *testing.T, s *memdriver.Store)) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		f(t, s)
		synctest.Wait()
		assert.Zero(t, s.Stats().Nodes)
	})
}

// instance runs a job every minute, delayed as if the scheduler's clock lagged.
func instance(t *testing.T, late time.Duration, run func(), option gocron.SchedulerOption) (stop func()) {
	t.Helper()
	scheduler, err := gocron.NewScheduler(option)
	require.NoError(t, err)
	start := time.Now().Truncate(time.Minute).Add(time.Minute + late)
	_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(run), gocron.WithName("job"),
		gocron.WithStartAt(gocron.WithStartDateTime(start)))
	require.NoError(t, err)
	scheduler.Start()
	return func() { require.NoError(t, scheduler.Shutdown()) }
}

func runsOfTwo(t *testing.T, s *memdriver.Store, minHold, minutes time.Duration) int64 {
	var runs atomic.Int64
	for i := range time.Duration(2) {
		client := dlock.NewClient(s)
		defer client.Close()
		locker := gocrondlock.NewLocker(client, minHold)
		defer locker.Close()
		defer instance(t, i*200*time.Millisecond, func() { runs.Add(1) }, gocron.WithDistributedLocker(locker))()
	}
	time.Sleep(minutes*time.Minute + 30*time.Second)
	return runs.Load()
}

func TestEachRunHappensOnceAlthoughClocksDiffer(t *testing.T) {
	inTime(t, func(t *testing.T, s *memdriver.Store) {
		assert.EqualValues(t, 10, runsOfTwo(t, s, 5*time.Second, 10))
	})
}

// If this test fails, gocron has changed and may no longer need a minimum hold.
func TestWithoutAMinimumHoldShortJobsRunTwice(t *testing.T) {
	inTime(t, func(t *testing.T, s *memdriver.Store) {
		assert.EqualValues(t, 20, runsOfTwo(t, s, 0, 10))
	})
}

func TestTheMinimumHoldEnds(t *testing.T) {
	for name, end := range map[string]struct {
		do    func(l *gocrondlock.Locker)
		after time.Duration
	}{
		"with its time": {func(*gocrondlock.Locker) { time.Sleep(30*time.Second + 1) }, 30*time.Second + 1},
		"with Close":    {(*gocrondlock.Locker).Close, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, s *memdriver.Store) {
				client := dlock.NewClient(s)
				defer client.Close()
				locker := gocrondlock.NewLocker(client, 30*time.Second)
				defer locker.Close()
				began := time.Now()
				lock, err := locker.Lock(bg, "job")
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(bg)
				cancel() // gocron does the same when it stops
				require.NoError(t, lock.Unlock(ctx))
				other := gocrondlock.NewLocker(client, 0)
				_, err = other.Lock(bg, "job")
				require.ErrorIs(t, err, dlock.ErrLocked)
				end.do(locker)
				lock, err = other.Lock(bg, "job")
				require.NoError(t, err)
				assert.Equal(t, end.after, time.Since(began))
				require.NoError(t, lock.Unlock(bg))
			})
		})
	}
}

func TestALongJobIsReleasedAtItsEnd(t *testing.T) {
	inTime(t, func(t *testing.T, s *memdriver.Store) {
		client := dlock.NewClient(s)
		defer client.Close()
		locker := gocrondlock.NewLocker(client, time.Second)
		for name, wait := range map[string]func(){
			"longer than the hold":  func() { time.Sleep(time.Second) },
			"until after the Close": locker.Close,
		} {
			lock, err := locker.Lock(bg, "job")
			require.NoError(t, err, name)
			wait()
			require.NoError(t, lock.Unlock(bg), name)
			assert.Zero(t, s.Stats().Nodes, name)
		}
	})
}

func TestAnyNameOfAJobNamesALock(t *testing.T) {
	inTime(t, func(t *testing.T, s *memdriver.Store) {
		client := dlock.NewClient(s)
		defer client.Close()
		locker := gocrondlock.NewLocker(client, 0)
		for _, job := range []string{"report", "github.com/a/b.(*T).Run-fm", "//", "ünicode\xff\n", "a%2Fb", "a/b"} {
			lock, err := locker.Lock(bg, job)
			require.NoError(t, err)
			defer func() { assert.NoError(t, lock.Unlock(bg)) }()
		}
		names, err := client.Walk(bg, "gocron")
		require.NoError(t, err)
		assert.Len(t, names, 6)
		assert.Contains(t, names, "gocron/report")
	})
}

func TestAStoreThatIsDownSkipsTheRun(t *testing.T) {
	inTime(t, func(t *testing.T, s *memdriver.Store) {
		client := dlock.NewClient(s)
		defer client.Close()
		defer s.Faults().Down()()
		_, err := gocrondlock.NewLocker(client, 0).Lock(bg, "job")
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, `gocrondlock: job "job": dlock: gocron/job: `)
		require.ErrorIs(t, gocrondlock.NewElector(client, "leader").IsLeader(bg), driver.ErrUnavailable)
	})
}

type remembering struct {
	*memdriver.Store
	last driver.Session
}

func (s *remembering) Connect(ctx context.Context) (_ driver.Session, err error) {
	s.last, err = s.Store.Connect(ctx)
	return s.last, err
}

func TestAStoreThatIsSilentSkipsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &remembering{Store: memdriver.New(memdriver.WithSessionTimeout(time.Hour))}
		client := dlock.NewClient(s)
		defer client.Close()
		require.NoError(t, client.Ping(bg))
		defer s.Faults().CutOff(s.last)()
		began := time.Now()
		_, err := gocrondlock.NewLocker(client, 0).Lock(bg, "job")
		require.ErrorIs(t, err, dlock.ErrTimeout)
		require.ErrorIs(t, gocrondlock.NewElector(client, "leader").IsLeader(bg), dlock.ErrTimeout)
		assert.Equal(t, 20*time.Second, time.Since(began), "two requests")
	})
}

func TestTheLeaderRunsAllUntilItStops(t *testing.T) {
	inTime(t, func(t *testing.T, s *memdriver.Store) {
		var runs [2]atomic.Int64
		var stops [2]func()
		for i := range stops {
			client := dlock.NewClient(s)
			elector := gocrondlock.NewElector(client, "leader")
			stop := instance(t, time.Duration(i)*200*time.Millisecond, func() { runs[i].Add(1) }, gocron.WithDistributedElector(elector))
			stops[i] = func() {
				stop()
				require.NoError(t, elector.Close())
				require.ErrorIs(t, elector.IsLeader(bg), dlock.ErrClosed)
				require.NoError(t, client.Close())
			}
		}
		time.Sleep(5*time.Minute + 30*time.Second)
		stops[0]()
		time.Sleep(5 * time.Minute)
		stops[1]()
		assert.EqualValues(t, 5, runs[0].Load())
		assert.EqualValues(t, 5, runs[1].Load())
	})
}

func TestALeaderThatLostItsLockIsNoLeader(t *testing.T) {
	inTime(t, func(t *testing.T, s *memdriver.Store) {
		client := dlock.NewClient(s)
		defer client.Close()
		elector := gocrondlock.NewElector(client, "leader")
		require.NoError(t, elector.IsLeader(bg))
		s.Faults().ExpireAll()
		other := dlock.NewClient(s)
		defer other.Close()
		rival := gocrondlock.NewElector(other, "leader")
		require.NoError(t, rival.IsLeader(bg))
		require.ErrorIs(t, elector.IsLeader(bg), gocrondlock.ErrNotLeader)
		require.NoError(t, rival.Close())
		require.NoError(t, elector.IsLeader(bg))
		require.NoError(t, elector.Close())
	})
}

func TestALeaderEndsTheSessionOfItsLostLock(t *testing.T) {
	inTime(t, func(t *testing.T, s *memdriver.Store) {
		store := &remembering{Store: s}
		client := dlock.NewClient(store)
		defer client.Close()
		elector := gocrondlock.NewElector(client, "leader")
		require.NoError(t, elector.IsLeader(bg))
		heal := s.Faults().CutOff(store.last)
		time.Sleep(8 * time.Second) // the lease is over, but the node exists
		heal()
		_ = elector.IsLeader(bg) // may fail while the old node exists
		synctest.Wait()
		require.NoError(t, elector.IsLeader(bg))
		require.NoError(t, elector.Close())
	})
}

func Example() {
	client, _ := dlock.Open("mem", "jobs") // every instance opens the same store
	locker := gocrondlock.NewLocker(client, 30*time.Second)
	scheduler, _ := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	done := make(chan struct{})
	_, _ = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(func() { fmt.Println("the report"); close(done) }), gocron.WithName("report"))
	scheduler.Start()

	<-done
	fmt.Println(scheduler.Shutdown())
	locker.Close()
	fmt.Println(client.Close())
	// Output:
	// the report
	// <nil>
	// <nil>
}
