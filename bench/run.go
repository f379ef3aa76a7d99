package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/dlock-go/dlock/bench/internal/work"
)

// run measures workloads with competitors on one setup.
type run struct {
	setup       setup
	settings    settings
	workloads   []workload
	competitors []competitor
	older       string // the label of an older revision that takes part; may be empty
	servers     map[string]server
	children    map[string]*child
	results     *results
	paths       int // number of paths of locks that have been used
}

// warmUpRounds is the number of rounds of each workload that are not counted.
const warmUpRounds = 1

// maxFaults is the number of failed rounds after which a competitor is left out of the
// rest of a workload.
const maxFaults = 2

// addOlder adds the older revision's counterpart of each competitor that is this
// library.
func (r *run) addOlder(older revision) {
	r.older = older.label
	r.competitors = withOlder(r.competitors, older)
}

// execute measures everything and returns the results. It stops all processes that it
// has started, also after an error. dir is a directory for files, which the caller
// removes.
func (r *run) execute(ctx context.Context, dir string) (*results, error) {
	began := time.Now()
	r.results = newResults(r.setup.name, r.settings)
	r.results.Against = r.older
	r.servers, r.children = map[string]server{}, map[string]*child{}
	defer r.stop()
	log.Printf("on %s", r.setup.phrase)
	if err := r.startServers(); err != nil {
		return nil, err
	}
	r.results.Machine = describe(r.servers, dir)
	if err := r.startChildren(dir); err != nil {
		return nil, err
	}
	for _, w := range r.workloads {
		if err := r.measure(ctx, w, dir); err != nil {
			return nil, err
		}
	}
	r.results.Took = time.Since(began).Round(time.Second).String()
	return r.results, nil
}

// startServers starts ZooKeeper, and etcd if a competitor needs it. If etcd is missing
// on this machine, startServers returns no error, and the competitors that need etcd
// are not measured.
func (r *run) startServers() error {
	zk, err := r.startZooKeeper()
	if err != nil {
		return err
	}
	r.servers[zookeeper] = zk
	for _, c := range r.competitors {
		if c.server != etcd {
			continue
		}
		s, err := startEtcd()
		if err != nil {
			log.Print(err)
			r.results.Missing[c.name] = err.Error()
			continue
		}
		r.servers[etcd] = s
	}
	return nil
}

// startZooKeeper starts the ZooKeeper servers of the setup, and the delay in front of
// them.
func (r *run) startZooKeeper() (server, error) {
	if r.setup.members > 1 {
		return startEnsemble(r.setup.members)
	}
	if !r.setup.delayed {
		return startZooKeeper(nil)
	}
	trips, err := measureDelay(r.settings.Delay)
	if err != nil {
		return nil, err
	}
	r.results.RoundTrips = trips
	return startDelayed(r.settings.Delay)
}

// startChildren starts the children of all competitors. A competitor whose
// child does not start is left out. If an older revision takes part,
// startChildren returns an error instead.
func (r *run) startChildren(dir string) error {
	for _, c := range r.competitors {
		err := r.startChild(c, dir)
		switch {
		case err == nil:
		case r.older != "":
			return fmt.Errorf("bench: %s cannot take part: choose others with -competitors: %w", c.name, err)
		default:
			log.Printf("%s is left out: %v", c.name, err)
			r.results.Missing[c.name] = err.Error()
		}
	}
	return nil
}

// startChild starts the child of a competitor and warms it up.
func (r *run) startChild(c competitor, dir string) error {
	if r.servers[c.server] == nil {
		return errors.New(r.results.Missing[c.name])
	}
	cmd, err := c.command(dir)
	if err != nil {
		return err
	}
	started, err := startChild(cmd)
	if err != nil {
		return err
	}
	r.children[c.name] = started
	return r.warmUp(c)
}

// warmUp has a child work for a while before anything is measured.
func (r *run) warmUp(c competitor) error {
	p := work.Plan{Kind: work.Loop, Sessions: 4, Contenders: 4, Millis: c.warmUp}
	if c.name == "bare" {
		p.Sessions, p.Contenders = 1, 1
	}
	_, err := r.round(c, workload{name: "warm", plan: p})
	return err
}

// measure measures a workload. Each round runs all competitors, so that other
// work on the machine slows all of them down. Each round begins with a
// different competitor than the round before.
func (r *run) measure(ctx context.Context, w workload, dir string) error {
	var taking []competitor
	for _, c := range r.competitors {
		if _, missing := r.results.Missing[c.name]; w.measures(c) && !missing {
			taking = append(taking, c)
		}
	}
	faults := map[string]int{}
	for n := range r.settings.Rounds + warmUpRounds {
		for i := range taking {
			if err := ctx.Err(); err != nil {
				return err
			}
			c := taking[(n+i)%len(taking)]
			var s sample
			if faults[c.name] < maxFaults {
				var err error
				if s, err = r.roundOrRestart(c, w, dir); err != nil {
					log.Printf("%s, %s: %v", w.name, c.name, err)
					faults[c.name]++
					r.results.fault(w.name, c.name, err)
				}
			}
			if n >= warmUpRounds {
				r.results.add(w.name, c.name, s)
			}
		}
		log.Printf("%s: round %d of %d", w.name, n, r.settings.Rounds)
	}
	return nil
}

// roundOrRestart does a round. After an error it stops the child, and the next
// round starts a new child.
func (r *run) roundOrRestart(c competitor, w workload, dir string) (sample, error) {
	if r.children[c.name] == nil {
		if err := r.startChild(c, dir); err != nil {
			return nil, err
		}
	}
	s, err := r.round(c, w)
	if err != nil {
		r.children[c.name].kill()
		r.children[c.name].stop()
		delete(r.children, c.name)
	}
	return s, err
}

func (r *run) round(c competitor, w workload) (sample, error) {
	r.paths++
	p := w.plan
	p.Path = fmt.Sprintf("/bench/%s-%d", w.name, r.paths)
	p.Timeout = r.settings.SessionSeconds
	return round(r.children[c.name], r.servers[c.server], p, w.age)
}

func (r *run) stop() {
	for _, c := range r.children {
		c.stop()
	}
	for _, s := range r.servers {
		s.stop()
	}
}
