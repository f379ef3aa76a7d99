package entry

import "time"

// BackOff decides how long to wait before the next try.
type BackOff struct {
	// Next returns how long to wait. A negative duration means to give up.
	Next func() time.Duration
	// Reset is called before the first wait after a success.
	Reset func()
}

// Retries paces the retries of a request. Each failure that follows a success
// starts a new back-off.
type Retries struct {
	New func() BackOff

	backOff BackOff // zero until the first failure
	failing bool
}

func (r *Retries) Succeeded() { r.failing = false }

// Next returns the pause after a failure. A negative one means to give up.
func (r *Retries) Next() time.Duration {
	switch {
	case r.backOff.Next == nil:
		r.backOff = r.New()
	case !r.failing:
		r.backOff.Reset()
	}
	r.failing = true
	return r.backOff.Next()
}

const endlessPause = 2 * time.Second

// NextEndless is like Next, but never gives up.
func (r *Retries) NextEndless() time.Duration {
	if d := r.Next(); d >= 0 {
		return d
	}
	r.backOff.Reset()
	return endlessPause
}

// Sleep waits for d. It returns false if stop closes first.
func Sleep(d time.Duration, stop <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
		return false
	}
}
