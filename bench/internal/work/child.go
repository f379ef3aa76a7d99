package work

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
)

// Serve executes commands with the named library until the input ends. If a
// command fails, the answer contains the error and Serve continues. Serve
// returns an error if the library is unknown, or if reading or writing fails.
func Serve(libraryName string, commands io.Reader, answers io.Writer) error {
	c := child{open: libraries[libraryName]}
	if c.open == nil {
		return fmt.Errorf("bench: unknown library %q", libraryName)
	}
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
	r.timedFrom, r.allocs = time.Now(), allocs()
	r.deadline = r.timedFrom.Add(time.Duration(r.plan.Millis) * time.Millisecond)
	close(r.started)
	if r.plan.Kind == Drain {
		if err := r.holder.unlock(); err != nil {
			return Report{}, err
		}
	}
	r.running.Wait()
	report := Report{
		Seconds: time.Since(r.timedFrom).Seconds(), Allocs: allocs() - r.allocs,
		Counts: r.counts, Tries: r.tries, Latencies: r.latencies,
	}
	if r.plan.Held {
		if err := r.holder.unlock(); err != nil {
			r.fail(err)
		}
	}
	return report, r.err
}

func allocs() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Mallocs)
}
