package recipes

import (
	"log/slog"
	"time"
)

// silentAfter is how long a call waits for a store that has never answered
// before the client logs that.
const silentAfter = 5 * time.Second

// watchSilence logs, once per client, that the store has not answered, unless
// the client's first session begins within silentAfter. The caller stops the
// timer when its call ends.
func (c *Client) watchSilence() *time.Timer {
	return time.AfterFunc(silentAfter, func() {
		if c.beginCall() == nil {
			defer c.endCall()
			c.logSilence()
		}
	})
}

func (c *Client) logSilence() {
	if c.live.Load() != nil || c.drains() || !c.silent.CompareAndSwap(false, true) {
		return
	}
	err := c.unreached()
	if err == nil {
		err = errNoAnswer // Connect has not returned yet
	}
	c.options.alarms().Warn("dlock: still no answer from the store", "waited", silentAfter, "error", err)
}

// alarms returns the logger for warnings that are logged even without
// WithLogger.
func (o *options) alarms() *slog.Logger {
	if o.loggerSet {
		return o.logger
	}
	return slog.Default()
}
