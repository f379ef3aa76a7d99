// Package gocrondlock lets the instances of a program share the jobs of gocron
// (github.com/go-co-op/gocron/v2), so that each run of a job happens on one of
// them.
//
//	client, err := dlock.Open("redis", dsn)
//	...
//	locker := gocrondlock.NewLocker(client, 30*time.Second)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	...
//	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false),
//		gocron.NewTask(report), gocron.WithName("report"))
//	...
//	scheduler.Start()
//
// To stop, call Shutdown of the scheduler, then Close of the locker, then Close
// of the client.
//
// # Locker or Elector
//
// A [Locker] has a lock for each job, so the jobs spread over the instances. An
// [Elector] has one lock, and its holder runs all jobs, which needs almost no
// requests. Neither repeats a run whose instance fails. A task that calls
// [dlock.RWMutex.OncePer] or [dlock.RWMutex.Once] needs neither of them, and
// another instance finishes its run.
//
// # Clocks that differ
//
// If a job on one machine ends before the clock of another says that it is
// time, a plain lock is free again, and the job runs twice. The second argument
// of [NewLocker], the minimum hold, prevents this. It must be longer than the
// clocks can differ, including the delays of a busy machine, and shorter than
// the time between two runs: a run that is due during the hold is skipped.
//
// Jobs with gocron.DurationJob count from the start of the scheduler, and so
// run at different times on each instance. Use gocron.CronJob, or
// gocron.WithStartAt with a round time.
//
// An Elector needs no minimum hold while the leader stays. When the leader
// changes, a run that both consider due may happen twice.
//
// # Names
//
// The lock of the job "report" is "gocron/report". Characters that can't be in
// the name of a lock are written like %2F. Without gocron.WithName, a job has
// the name of its function, which may change.
//
// # Guarantees
//
// A job may lose its lock while it runs, for example because the store was out
// of reach, and gocron has no way to tell the job. Another
// instance may then run it as well. Where that does harm, the job takes a lock
// itself and checks its fencing token: see [dlock.RWMutex.WithLock].
package gocrondlock
