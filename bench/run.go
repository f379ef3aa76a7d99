package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/dlock-go/dlock/bench/internal/work"
)

// run measures the chosen workloads with the chosen competitors.
type run struct {
	settings    settings
	workloads   []workload
	competitors []competitor
	against     string // an older revision that takes part; may be empty
	servers     map[string]server
	children    map[string]*child
	results     *results
	paths       int // of locks, used up
}

// warmRounds are done with every workload before those that count.
const warmRounds = 1

// maxFaults is after how many faults a competitor is left out of the rest of a workload.
const maxFaults = 2

// execute does everything and returns what was found out. It stops what it has started.
func (r *run) execute(ctx context.Context) (*results, error) {
	began := time.Now()
	r.results = newResults(r.settings)
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if r.against != "" {
		older, err := build(ctx, r.against, dir)
		if err != nil {
			return nil, err
		}
		r.results.Against = older.label
		r.competitors = withOlder(r.competitors, older)
	}
	defer r.stop()
	if err := r.startServers(); err != nil {
		return nil, err
	}
	r.results.Machine = describe(r.servers, dir)
	for _, c := range r.competitors {
		if err := r.startChild(c, dir); err != nil {
			if r.against != "" {
				return nil, fmt.Errorf("bench: %s cannot take part; without it, choose others with -competitors: %w", c.name, err)
			}
			log.Printf("%s is left out: %v", c.name, err)
			r.results.Missing[c.name] = err.Error()
		}
	}
	for _, w := range r.workloads {
		if err := r.measure(ctx, w, dir); err != nil {
			return nil, err
		}
	}
	r.results.Took = time.Since(began).Round(time.Second).String()
	return r.results, nil
}

func (r *run) startServers() error {
	r.servers = map[string]server{}
	zk, err := startZooKeeper()
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

func (r *run) startChild(c competitor, dir string) error {
	if r.servers[c.server] == nil {
		return fmt.Errorf("%s", r.results.Missing[c.name])
	}
	cmd, err := c.command(dir)
	if err != nil {
		return err
	}
	started, err := startChild(cmd)
	if err != nil {
		return err
	}
	if r.children == nil {
		r.children = map[string]*child{}
	}
	r.children[c.name] = started
	return r.warm(c)
}

// warm has a child work for a while before anything is measured.
func (r *run) warm(c competitor) error {
	p := work.Plan{Kind: work.Loop, Sessions: 4, Contenders: 4, Millis: c.warm}
	if c.name == "bare" {
		p.Sessions, p.Contenders = 1, 1
	}
	_, err := r.round(c, p, "warm")
	return err
}

// measure goes round by round through the competitors, so that what happens to the machine for a
// while happens to all of them; and each round begins with another one.
func (r *run) measure(ctx context.Context, w workload, dir string) error {
	var there []competitor
	for _, c := range r.competitors {
		if _, missing := r.results.Missing[c.name]; w.can(c) && !missing {
			there = append(there, c)
		}
	}
	faults := map[string]int{}
	for n := range r.settings.Rounds + warmRounds {
		for i := range there {
			if err := ctx.Err(); err != nil {
				return err
			}
			c := there[(n+i)%len(there)]
			var s sample
			if faults[c.name] < maxFaults {
				var err error
				if s, err = r.attempt(c, w, dir); err != nil {
					log.Printf("%s, %s: %v", w.name, c.name, err)
					faults[c.name]++
					r.results.fault(w.name, c.name, err)
				}
			}
			if n >= warmRounds {
				r.results.add(w.name, c.name, s)
			}
		}
		log.Printf("%s: round %d of %d", w.name, n, r.settings.Rounds)
	}
	return nil
}

// attempt does a round. After a fault the child starts anew.
func (r *run) attempt(c competitor, w workload, dir string) (sample, error) {
	if r.children[c.name] == nil {
		if err := r.startChild(c, dir); err != nil {
			return nil, err
		}
	}
	s, err := r.round(c, w.plan, w.name)
	if err != nil {
		r.children[c.name].kill()
		r.children[c.name].stop()
		delete(r.children, c.name)
	}
	return s, err
}

func (r *run) round(c competitor, p work.Plan, name string) (sample, error) {
	r.paths++
	p.Path = fmt.Sprintf("/bench/%s-%d", name, r.paths)
	p.Timeout = r.settings.SessionSeconds
	return round(r.children[c.name], r.servers[c.server], p)
}

func (r *run) stop() {
	for _, c := range r.children {
		c.stop()
	}
	for _, s := range r.servers {
		s.stop()
	}
}
