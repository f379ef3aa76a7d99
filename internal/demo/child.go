package demo

import (
	"context"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/secret"
)

// childArgument is the only argument of "dlock demo" in a child process.
const childArgument = "child-process"

// parent is the connection of a child process to its parent. It is the reporter of
// the workers of the child.
type parent struct{ client *rpc.Client }

// runChild is a child process of a run. It makes its calls to the parent over the
// two pipes. The error output goes to the parent, too.
func runChild(ctx context.Context, in io.Reader, out io.WriteCloser, stderr io.Writer) int {
	signal.Ignore(syscall.SIGPIPE) // the next call notices that the parent has ended
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := parent{rpc.NewClient(pipes{in, out})}
	go func() {
		p.call("Stop", true, new(bool))
		cancel()
	}()
	var job Job
	p.call("Job", true, &job)
	s, err := parse(job.Args)
	if err == nil {
		err = p.run(ctx, s, job.Victim)
	}
	if err != nil {
		fmt.Fprintln(stderr, secret.Hide(err.Error(), job.Args))
		return statusBad
	}
	return statusOK
}

func (p parent) run(ctx context.Context, s *settings, victim bool) error {
	count, err := openCounter(s.counterFile)
	if err != nil {
		return err
	}
	defer count.close()
	workers, err := newWorkers(s, s.open, count, p)
	if err != nil {
		return err
	}
	if err := connectAll(ctx, workers, s.connectTimeout); err != nil {
		workers.close()
		return err
	}
	var begin bool
	p.call("Begin", true, &begin)
	if begin {
		workers.work(ctx)
		workers[0].plan = []intent{p.lastStep(victim)}
		workers[0].run(ctx)
	}
	for _, err := range workers.close() {
		p.call("NotClosed", err.Error(), new(bool))
	}
	return nil
}

// lastStep returns what the first worker of a child does when all workers of the
// child have carried out their plans. The victim is killed while it holds the lock.
// By then the parent has all other attempts of the victim. All other children take
// the lock once after the kill.
func (p parent) lastStep(victim bool) intent {
	if victim {
		return intent{mode: dlock.Exclusive, holding: func(t *attempt) { p.call("Kill", t.wire(), new(bool)) }}
	}
	return intent{mode: dlock.Exclusive, await: func(ctx context.Context) {
		killed := make(chan struct{})
		go func() {
			p.call("AwaitKill", true, new(bool))
			close(killed)
		}()
		select {
		case <-killed:
		case <-ctx.Done():
		}
	}}
}

// call makes a call to the parent. If the call fails, because the parent has ended,
// this process ends at once.
func (p parent) call(method string, argument, reply any) {
	if err := p.client.Call(serviceName+"."+method, argument, reply); err != nil {
		os.Exit(statusBad)
	}
}

func (p parent) now() (at time.Duration) {
	p.call("Now", true, &at)
	return at
}

func (p parent) say(who, verb, what string) (at time.Duration) {
	p.call("Say", Event{who, verb, what}, &at)
	return at
}

func (p parent) finished(t *attempt) { p.call("Finished", t.wire(), new(bool)) }
