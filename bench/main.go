// Command bench measures this library and other distributed locks side by side on
// one machine. It writes the tables of docs/use/benchmarks.md. To set up what it
// needs and to run it with its defaults:
//
//	make bench
//
// Flags choose a part. If they choose some workloads or competitors only, the tables
// are printed and nothing is written, unless -write is given:
//
//	go run . -rounds 3 -workloads free,contend-8 -competitors dlock,zk.Lock
//
// It measures on one ZooKeeper server, on an ensemble of three, and on one server
// behind a network delay. The flag -servers chooses among these:
//
//	go run . -servers three,delayed -delay 1ms
//
// With -against, an older revision of this repository takes part beside the current
// one:
//
//	go run . -rounds 30 -against HEAD~30 -servers one
//
// bench builds the revision in a temporary directory. For each workload it
// prints the speed of the current library in relation to that revision, with a
// 95% interval. It exits with status 1 if, in a workload, the entire interval
// is below 0.95. Package work lists what has to stay compatible between
// revisions.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/bench/internal/stats"
	"github.com/dlock-go/dlock/bench/internal/work"
)

func main() {
	log.SetFlags(log.Ltime)
	if err := command(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

type options struct {
	settings
	servers, workloads, competitors string // names, separated by commas; empty for all
	against                         string // the name of an older revision that takes part; may be empty
	docs, child                     string
	write, render                   bool
}

func command(args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	known := func(list []string) string {
		return "measure only these, separated by commas: " + strings.Join(list, " ")
	}
	flags.IntVar(&o.Rounds, "rounds", 5, "how often each workload is measured")
	flags.IntVar(&o.SessionSeconds, "session", 30, "timeout of the sessions, in seconds")
	flags.DurationVar(&o.Delay, "delay", time.Millisecond, "network delay in each direction, for -servers delayed")
	flags.StringVar(&o.servers, "servers", "", known(mapped(setups(), func(s setup) string { return s.name })))
	flags.StringVar(&o.workloads, "workloads", "", known(mapped(workloads(), func(w workload) string { return w.name })))
	flags.StringVar(&o.competitors, "competitors", "", known(mapped(competitors(), func(c competitor) string { return c.name })))
	flags.StringVar(&o.against, "against", "", "also measure this older git revision of dlock; without -competitors, measure dlock and it only")
	flags.StringVar(&o.docs, "docs", pageDir, "the directory of benchmarks.md")
	flags.BoolVar(&o.write, "write", false, "write the page even if -workloads or -competitors is given")
	flags.BoolVar(&o.render, "render", false, "measure nothing: write the page from the results of earlier runs")
	flags.StringVar(&o.child, "child", "", "for bench itself: run as the child that works with this library")
	_ = flags.Parse(args) // exits after an error
	switch {
	case o.child != "":
		return work.Serve(o.child, os.Stdin, os.Stdout)
	case o.render:
		return publish(o.docs)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	return o.measure(ctx)
}

// measure measures what the options choose and reports each setup as soon as it is
// measured.
func (o options) measure(ctx context.Context) error {
	if o.against != "" {
		if err := o.checkAgainst(); err != nil {
			return err
		}
		o.competitors = cmp.Or(o.competitors, "dlock")
	}
	runs, err := o.runs()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.against != "" {
		older, err := build(ctx, o.against, dir)
		if err != nil {
			return err
		}
		for _, r := range runs {
			r.addOlder(older)
		}
	}
	var slower []error
	for _, r := range runs {
		found, err := r.execute(ctx, dir)
		if err != nil {
			return err
		}
		if err := o.report(found); err != nil {
			return err
		}
		slower = append(slower, newReport(found).slowerThanOlder())
	}
	return errors.Join(slower...)
}

// report handles the results of a setup. It prints them if an older revision
// took part, or if only some workloads or competitors were chosen without
// -write. Otherwise it writes them to the page.
func (o options) report(found *results) error {
	if o.against != "" || o.workloads+o.competitors != "" && !o.write {
		fmt.Print(newReport(found).text())
		return nil
	}
	if err := found.save(resultsFile(o.docs, found.Setup)); err != nil {
		return err
	}
	return publish(o.docs)
}

// checkAgainst returns an error if a flag cannot be combined with -against.
func (o options) checkAgainst() error {
	if o.write {
		return errors.New("bench: -against does not go with -write: the page has no place for an older revision")
	}
	if o.Rounds < stats.MinForInterval {
		return fmt.Errorf("bench: -against takes at least %d rounds for a 95%% interval: add -rounds 30", stats.MinForInterval)
	}
	return nil
}
