package main

import (
	"context"
	"fmt"
	"log"

	"github.com/dlock-go/dlock/bench/internal/work"
)

type run struct {
	setup       setup
	rounds      int
	workloads   []workload
	competitors []competitor
	older       string // label of the older revision, if any
	servers     map[string]server
	children    map[string]*child
	results     *results
	missing     map[string]error // why competitors cannot take part
	paths       int              // number of lock paths used so far
}

// warmUpRounds is the number of initial rounds whose results are discarded.
const warmUpRounds = 1

// maxFaults is the number of failed rounds after which a competitor is dropped
// from a workload.
const maxFaults = 2

func (r *run) addOlder(older revision) {
	r.older = older.label
	r.competitors = withOlder(r.competitors, older)
}

// execute measures all workloads. It may leave files in dir, but stops all
// processes that it has started.
func (r *run) execute(ctx context.Context, dir string) (*results, error) {
	r.results = newResults(r.setup.name, r.rounds)
	r.results.Against = r.older
	r.servers, r.children, r.missing = map[string]server{}, map[string]*child{}, map[string]error{}
	defer r.stop()
	log.Printf("on %s", r.setup.phrase)
	if err := r.startServers(); err != nil {
		return nil, err
	}
	if err := r.startChildren(dir); err != nil {
		return nil, err
	}
	for _, w := range r.workloads {
		if err := r.measure(ctx, w, dir); err != nil {
			return nil, err
		}
	}
	return r.results, nil
}

// startServers starts ZooKeeper, and etcd if a competitor needs it. If etcd is
// not installed, its competitors are left out.
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
			r.missing[c.name] = err
			continue
		}
		r.servers[etcd] = s
	}
	return nil
}

func (r *run) startZooKeeper() (server, error) {
	if r.setup.members > 1 {
		return startEnsemble(r.setup.members)
	}
	if r.setup.delayed {
		return startDelayed(networkDelay)
	}
	return startZooKeeper(nil)
}

// startChildren starts the child processes of all competitors, and leaves out
// those that fail to start. In a comparison with an older revision, such a
// failure is an error.
func (r *run) startChildren(dir string) error {
	for _, c := range r.competitors {
		err := r.startChild(c, dir)
		switch {
		case err == nil:
		case r.older != "":
			return fmt.Errorf("bench: %s cannot take part: choose others with -competitors: %w", c.name, err)
		default:
			log.Printf("%s is left out: %v", c.name, err)
			r.missing[c.name] = err
		}
	}
	return nil
}

func (r *run) startChild(c competitor, dir string) error {
	if r.servers[c.server] == nil {
		return r.missing[c.name]
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

func (r *run) warmUp(c competitor) error {
	p := work.Plan{Kind: work.Loop, Sessions: 4, Contenders: 4, Millis: c.warmUp}
	if c.name == "bare" {
		p.Sessions, p.Contenders = 1, 1
	}
	_, err := r.round(c, workload{name: "warm", plan: p})
	return err
}

// measure runs all competitors in each round, so that other load on the machine
// affects all of them alike. Their order rotates from round to round.
func (r *run) measure(ctx context.Context, w workload, dir string) error {
	var taking []competitor
	for _, c := range r.competitors {
		if w.measures(c) && r.missing[c.name] == nil {
			taking = append(taking, c)
		}
	}
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
				if s, err = r.roundOrRestart(c, w, dir); err != nil {
					log.Printf("%s, %s: %v", w.name, c.name, err)
					faults[c.name]++
				}
			}
			if n >= warmUpRounds {
				r.results.add(w.name, c.name, s)
			}
		}
		log.Printf("%s: round %d of %d", w.name, n, r.rounds)
	}
	return nil
}

// roundOrRestart runs one round. If the round fails, it stops the child, so
// that the next round starts a new one.
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
	p.Timeout = r.setup.sessionSeconds
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
