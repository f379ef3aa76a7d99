package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/dlock-go/dlock/bench/internal/work"
)

// run measures the chosen workloads and competitors of one setup.
type run struct {
	setup       setup
	rounds      int
	workloads   []workload
	competitors []competitor // once started, only those that run here
	older       string       // label of the older revision, if any
	server      *zooKeeper
	children    map[string]*child
	samples     samples
	paths       int // number of lock paths used so far
}

// warmUpRounds is the number of initial rounds whose results are discarded.
const warmUpRounds = 1

// maxFaults is the number of failed rounds after which a competitor is dropped
// from a workload.
const maxFaults = 2

func (r *run) execute(ctx context.Context) error {
	r.children, r.samples = map[string]*child{}, samples{}
	log.Printf("on %s", r.setup.phrase)
	var err error
	if r.server, err = startZooKeeper(r.setup); err != nil {
		return err
	}
	defer r.server.stop()
	defer r.stopChildren()
	if err := r.startChildren(); err != nil {
		return err
	}
	for _, w := range r.workloads {
		if err := r.measure(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// startChildren leaves out competitors that fail to start. In a comparison with
// an older revision, such a failure is an error.
func (r *run) startChildren() error {
	var started []competitor
	for _, c := range r.competitors {
		err := r.startChild(c)
		switch {
		case err == nil:
			started = append(started, c)
		case r.older != "":
			return fmt.Errorf("bench: %s cannot take part: choose others with -competitors: %w", c.name, err)
		default:
			log.Printf("%s is left out: %v", c.name, err)
		}
	}
	r.competitors = started
	return nil
}

func (r *run) startChild(c competitor) error {
	cmd, err := c.command()
	if err != nil {
		return err
	}
	started, err := startChild(cmd)
	if err != nil {
		return err
	}
	r.children[c.name] = started
	_, err = r.round(c, workload{name: "warm", plan: work.Plan{Kind: work.Loop, Sessions: 4, Contenders: 4, Millis: c.warmUp}})
	return err
}

// measure runs all competitors in each round, in rotating order, so that other
// load on the machine affects them alike.
func (r *run) measure(ctx context.Context, w workload) error {
	taking := filter(r.competitors, w.measures)
	faults := map[string]int{}
	for n := range r.rounds + warmUpRounds {
		for i := range taking {
			if err := ctx.Err(); err != nil {
				return err
			}
			c := taking[(n+i)%len(taking)]
			var s sample
			if faults[c.name] < maxFaults {
				var err error
				if s, err = r.roundOrRestart(c, w); err != nil {
					log.Printf("%s, %s: %v", w.name, c.name, err)
					faults[c.name]++
				}
			}
			if n >= warmUpRounds {
				r.samples.add(w.name, c.name, s)
			}
		}
		log.Printf("%s: round %d of %d", w.name, n, r.rounds)
	}
	return nil
}

// roundOrRestart runs one round. If the round fails, it stops the child, so
// that the next round starts a new one.
func (r *run) roundOrRestart(c competitor, w workload) (s sample, err error) {
	if r.children[c.name] == nil {
		err = r.startChild(c)
	}
	if err == nil {
		s, err = r.round(c, w)
	}
	if err != nil && r.children[c.name] != nil {
		r.children[c.name].kill()
		r.children[c.name].stop()
		delete(r.children, c.name)
	}
	return s, err
}

func (r *run) round(c competitor, w workload) (sample, error) {
	r.paths++
	child, p := r.children[c.name], w.plan
	p.Path = fmt.Sprintf("/bench/%s-%d", w.name, r.paths)
	p.Timeout = r.setup.sessionSeconds
	p.Server = r.server.address
	if err := child.prepare(p); err != nil {
		return nil, err
	}
	if p.Kind == work.Drain {
		if err := r.awaitQueue(p, w.age); err != nil {
			return nil, err
		}
	}
	before, err := r.server.read()
	if err != nil {
		return nil, err
	}
	report, err := child.measure(p)
	if err != nil {
		return nil, err
	}
	after, err := r.server.read()
	if err != nil {
		return nil, err
	}
	figures, err := evaluate(p, report, after.minus(before).minus(r.server.cost))
	if err != nil {
		return nil, err
	}
	_, err = child.ask("end", "ended", answerWithin)
	return figures, err
}

// awaitQueue waits until all contenders are queued and idle, longer than the
// 300 ms after which a dlock holder watches its own node.
func (r *run) awaitQueue(p work.Plan, age time.Duration) error {
	const pause, idlePauses = 100 * time.Millisecond, 5
	heartbeats := float64(10 + p.Sessions/4) // more than idle sessions send per pause
	var last counters
	for began, idle := time.Now(), 0; idle < idlePauses; time.Sleep(pause) {
		now, err := r.server.read()
		if err != nil {
			return err
		}
		if now.nodes > float64(p.Contenders) && now.minus(last).requests <= heartbeats {
			idle++
		} else {
			idle = 0
		}
		last = now
		if time.Since(began) > answerWithin {
			return fmt.Errorf("%v of %d contenders are in the queue after %v", now.nodes-1, p.Contenders, answerWithin)
		}
	}
	time.Sleep(age)
	return nil
}

func (r *run) stopChildren() {
	for _, c := range r.children {
		c.stop()
	}
}
