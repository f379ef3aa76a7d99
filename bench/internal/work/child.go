package work

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Serve executes commands with the named library until the input ends. If a
// command fails, the answer contains the error and Serve continues. Serve
// returns an error if the library is unknown, or if reading or writing fails.
func Serve(libraryName string, commands io.Reader, answers io.Writer) error {
	open, err := find(libraryName)
	if err != nil {
		return err
	}
	c := child{open: open}
	defer c.end()
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		answer, err := c.execute(lines.Text())
		if err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		if _, err := fmt.Fprintln(answers, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

type child struct {
	open  library
	round *round // nil except between the commands prepare and end
}

func (c *child) execute(line string) (answer string, err error) {
	command, argument, _ := strings.Cut(line, " ")
	switch command {
	case "prepare":
		var p Plan
		// Reject unknown fields, because they may ask for something
		// that this child does not support.
		d := json.NewDecoder(strings.NewReader(argument))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			return "", err
		}
		c.round, err = openRound(c.open, p)
		runtime.GC()
		return "ready", err
	case "go":
		if c.round == nil {
			return "", errors.New("bench: go without prepare")
		}
		report, err := c.round.measure()
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(report)
		return "report " + string(text), err
	case "end":
		return "ended", c.end()
	}
	return "", fmt.Errorf("bench: unknown command %q", command)
}

func (c *child) end() error {
	if c.round == nil {
		return nil
	}
	r := c.round
	c.round = nil
	return r.close()
}

func (r *round) measure() (Report, error) {
	r.timedFrom = takeSnapshot()
	r.deadline = r.timedFrom.at.Add(time.Duration(r.plan.Millis) * time.Millisecond)
	close(r.started)
	if r.plan.Kind == Drain {
		if err := r.holder.unlock(); err != nil {
			return Report{}, err
		}
	}
	r.running.Wait()
	seconds := time.Since(r.timedFrom.at).Seconds()
	after := used()
	if r.plan.Held {
		if err := r.holder.unlock(); err != nil {
			r.fail(err)
		}
	}
	return Report{
		Seconds: seconds, CPU: after.cpu - r.timedFrom.cpu, Allocs: after.allocs - r.timedFrom.allocs,
		Counts: r.counts, Tries: r.tries, Latencies: r.latencies,
	}, r.err
}

// usage is what the process has consumed since its start.
type usage struct {
	cpu    float64 // in seconds
	allocs int64
}

type snapshot struct {
	usage
	at time.Time
}

func takeSnapshot() snapshot { return snapshot{usage: used(), at: time.Now()} }

func used() usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // getrusage cannot fail for the calling process
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{
		cpu:    time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds(),
		allocs: int64(m.Mallocs),
	}
}
