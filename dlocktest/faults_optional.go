package dlocktest

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// The optional interfaces, one type each, so that a session can be put together that implements
// exactly those which the session behind it does.
type (
	replacing struct{ *faulty }
	giving    struct{ *faulty }
	reading   struct{ *faulty }
	walking   struct{ *faulty }
)

// dressed returns the session with the optional interfaces of the one behind it.
func (s *faulty) dressed() driver.Session {
	type (
		replacer = driver.Replacer
		releaser = driver.Releaser
		reader   = driver.Reader
		walker   = driver.Walker
	)
	a, b, c, d := replacing{s}, giving{s}, reading{s}, walking{s}
	switch abilities(s.inner) {
	case needReplacer:
		return struct {
			*faulty
			replacer
		}{s, a}
	case needReleaser:
		return struct {
			*faulty
			releaser
		}{s, b}
	case needReplacer | needReleaser:
		return struct {
			*faulty
			replacer
			releaser
		}{s, a, b}
	case needReader:
		return struct {
			*faulty
			reader
		}{s, c}
	case needReader | needReplacer:
		return struct {
			*faulty
			replacer
			reader
		}{s, a, c}
	case needReader | needReleaser:
		return struct {
			*faulty
			releaser
			reader
		}{s, b, c}
	case needReader | needReplacer | needReleaser:
		return struct {
			*faulty
			replacer
			releaser
			reader
		}{s, a, b, c}
	case needWalker:
		return struct {
			*faulty
			walker
		}{s, d}
	case needWalker | needReplacer:
		return struct {
			*faulty
			replacer
			walker
		}{s, a, d}
	case needWalker | needReleaser:
		return struct {
			*faulty
			releaser
			walker
		}{s, b, d}
	case needWalker | needReplacer | needReleaser:
		return struct {
			*faulty
			replacer
			releaser
			walker
		}{s, a, b, d}
	case needWalker | needReader:
		return struct {
			*faulty
			reader
			walker
		}{s, c, d}
	case needWalker | needReader | needReplacer:
		return struct {
			*faulty
			replacer
			reader
			walker
		}{s, a, c, d}
	case needWalker | needReader | needReleaser:
		return struct {
			*faulty
			releaser
			reader
			walker
		}{s, b, c, d}
	case needWalker | needReader | needReplacer | needReleaser:
		return struct {
			*faulty
			replacer
			releaser
			reader
			walker
		}{s, a, b, c, d}
	}
	return s
}

// Replace implements driver.Replacer.
func (s replacing) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	q, _, err := send(ctx, s.faulty, order[driver.Place]{
		Request: s.numbered(Request{Method: MethodReplace, Queue: queue, Name: p.Name, Place: p}),
		do: func(ctx context.Context) (driver.Place, error) {
			return s.inner.(driver.Replacer).Replace(ctx, queue, p, prefix)
		},
		place: func(p driver.Place) driver.Place { return p },
	})
	return q, err
}

// Release implements driver.Releaser.
func (s giving) Release(ctx context.Context, queue string, p driver.Place) error {
	_, _, err := send(ctx, s.faulty, s.removal(MethodRelease, queue, p, s.inner.(driver.Releaser).Release))
	return err
}

// Read implements driver.Reader.
func (s reading) Read(ctx context.Context, queue, name string) (driver.Info, error) {
	info, _, err := send(ctx, s.faulty, order[driver.Info]{
		Request: s.numbered(Request{Method: MethodRead, Queue: queue, Name: name}),
		do: func(ctx context.Context) (driver.Info, error) {
			return s.inner.(driver.Reader).Read(ctx, queue, name)
		},
	})
	return info, err
}

// Walk implements driver.Walker.
func (s walking) Walk(ctx context.Context, prefix string) ([]string, error) {
	queues, _, err := send(ctx, s.faulty, order[[]string]{
		Request: s.numbered(Request{Method: MethodWalk, Name: prefix}),
		do: func(ctx context.Context) ([]string, error) {
			return s.inner.(driver.Walker).Walk(ctx, prefix)
		},
	})
	return queues, err
}
