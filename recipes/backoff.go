package recipes

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// BackOff is how long to wait before the next try. The types of
// github.com/cenkalti/backoff, of every major version so far, implement it.
type BackOff interface {
	// NextBackOff returns how long to wait; a negative duration means to give up.
	NextBackOff() time.Duration
	// Reset is called before the first wait after a success.
	Reset()
}

// The default back-off gives up when the store has failed for this long without a success
// between: somebody who waits for ever behind a mistyped address is not helped.
const giveUpAfter = time.Minute

func defaultBackOff() BackOff {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(giveUpAfter),
	)
	return b
}

// retries paces the retries of one thing. A run of failures begins with a fresh back-off,
// however long ago the last one was.
type retries struct {
	newBackOff func() BackOff
	backOff    BackOff
	failing    bool
}

func (r *retries) succeeded() { r.failing = false }

// next returns how long to wait after a failure; a negative duration means to give up.
func (r *retries) next() time.Duration {
	switch {
	case r.backOff == nil:
		if r.backOff = r.newBackOff(); r.backOff == nil {
			r.backOff = defaultBackOff()
		}
	case !r.failing:
		r.backOff.Reset()
	}
	r.failing = true
	return r.backOff.NextBackOff()
}

// nextTireless is next for what must not give up: reaching the store again, and removing what
// is left there.
func (r *retries) nextTireless() time.Duration {
	if d := r.next(); d >= 0 {
		return d
	}
	r.backOff.Reset()
	return tirelessPause
}

// tirelessPause follows where the back-off has given up.
const tirelessPause = 2 * time.Second

// sleep waits for d. It returns false at once when stop closes before that.
func sleep(d time.Duration, stop <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
		return false
	}
}
