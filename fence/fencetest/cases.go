package fencetest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

type run struct {
	Resource
	ctx  context.Context
	wait time.Duration
}

var cases = []struct {
	name  string
	check func(run) error
}{
	{"stale writer", staleWriter},
	{"equal token", equalToken},
	{"reordered write", reorderedWrite},
	{"reader", reader},
	{"downgrade", downgrade},
	{"restart", restart},
	{"large tokens", largeTokens},
}

var errSkip = errors.New("the resource implements no Restarter")

// first is the token of the earliest holder. It is about as large as the tokens
// of Redis and MySQL, which come from a clock.
const first = 1_800_000_000_000_000

func staleWriter(r run) error {
	return inOrder(
		r.writes(first+1, "old"),
		r.writes(first+3, "new"),
		r.refuses(first+2, "late"),
		r.refuses(first+1, "late"),
		r.reads(first+4, "new"),
		r.writes(first+5, "newer"),
		r.reads(first+5, "newer"),
	)
}

func equalToken(r run) error {
	return inOrder(
		r.writes(first, "a"),
		r.writes(first, "b"),
		r.writes(first, "b"),
		r.reads(first, "b"),
	)
}

func reorderedWrite(r run) error {
	ended := make(chan error, 1)
	paused := 0
	old := r.Write(r.ctx, first, "old", func() {
		if paused++; paused > 1 {
			return // a repeated transaction
		}
		go func() { ended <- r.writes(first+1, "new")() }()
		select {
		case err := <-ended:
			ended <- err
		case <-time.After(r.wait):
		}
	})
	if paused == 0 {
		return errors.Join(old, errors.New("the method Write has not called pause"))
	}
	if err := <-ended; err != nil {
		return err
	}
	if err := r.reads(first+1, "new")(); err != nil {
		return fmt.Errorf("after a write with token %d that was paused in the middle (its error: %v): %w", first, old, err)
	}
	return r.refuses(first, "late")()
}

func reader(r run) error {
	return inOrder(
		r.writes(first+1, "a"),
		r.reads(first+3, "a"),
		r.reads(first+2, "a"),
		r.writes(first+4, "b"),
		r.mayNotRead(first+3),
		r.reads(first+5, "b"),
	)
}

func downgrade(r run) error {
	return inOrder(
		r.writes(first+1, "a"),
		r.reads(first+1, "a"),
		r.reads(first+2, "a"),
		r.reads(first+1, "a"),
		r.writes(first+3, "b"),
		r.mayNotRead(first+1),
		r.refuses(first+1, "late"),
	)
}

func restart(r run) error {
	program, ok := r.Resource.(Restarter)
	if !ok {
		return errSkip
	}
	return inOrder(
		r.writes(first+1, "a"),
		func() error { return program.Restart(r.ctx) },
		r.refuses(first, "late"),
		r.reads(first+1, "a"),
		r.writes(first+1, "b"),
		r.reads(first+1, "b"),
	)
}

// largeTokens writes with each power of two as the token and must be refused
// with the next smaller token. Resources that round or truncate fail.
func largeTokens(r run) error {
	const bits = 63
	var steps []func() error
	for bit := 1; bit < bits; bit++ {
		steps = append(steps, r.writes(1<<bit, "new"), r.refuses(1<<bit-1, "late"))
	}
	return inOrder(append(steps, r.reads(1<<(bits-1), "new"))...)
}

func inOrder(steps ...func() error) error {
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

func (r run) writes(token int64, value string) func() error {
	return func() error {
		if err := r.Write(r.ctx, token, value, func() {}); err != nil {
			return fmt.Errorf("the write of %q with token %d must pass: %w", value, token, err)
		}
		return nil
	}
}

func (r run) refuses(token int64, value string) func() error {
	return func() error {
		if r.Write(r.ctx, token, value, func() {}) == nil {
			return fmt.Errorf("the write of %q with token %d must be refused, as a later holder has written", value, token)
		}
		return nil
	}
}

func (r run) reads(token int64, want string) func() error {
	return func() error {
		got, err := r.Read(r.ctx, token)
		if err != nil {
			return fmt.Errorf("the read with token %d must pass: %w", token, err)
		}
		if got != want {
			return fmt.Errorf("the read with token %d returned %q, not %q", token, got, want)
		}
		return nil
	}
}

func (r run) mayNotRead(token int64) func() error {
	return func() error {
		if got, err := r.Read(r.ctx, token); err == nil {
			return fmt.Errorf("the read with token %d must be refused, as a later holder has written, but returned %q", token, got)
		}
		return nil
	}
}
