package dlocktest

import "github.com/dlock-go/dlock/driver"

var describeCases = []testCase{
	{name: "describe-returns-the-timeout-that-was-granted",
		why: "logs and hooks would say wrongly for how long the locks of a client outlive its process", run: describeTimeout},
	{name: "describe-tells-sessions-apart", why: "an operator who looks for the session of a log line would find another session",
		run: describeID},
}

// wantTimeout checks the session timeout in the description of a session. A store may
// keep a session for a little longer than its timeout, because it looks for sessions to
// end from time to time. Config.SessionTimeout may include that time, so the timeout of
// the session may be shorter, but not less than half of it.
func (c *check) wantTimeout(s driver.Session, when string) {
	got, most := driver.Describe(s).Timeout, c.config.sessionTimeout()
	if got != 0 && (got < most/2 || got > most) {
		c.errorf("Describe %s returned the timeout %v, expected %v, the Config.SessionTimeout, or zero if the timeout is not known",
			when, got, most)
	}
}

func describeTimeout(c *check) {
	s := c.session()
	c.wantTimeout(s, "of a new session")
	c.create(s, "q", writer)
	c.wantTimeout(s, "of a session that has made a node")
	c.close(s)
	c.wantTimeout(s, "of a closed session")
}

func describeID(c *check) {
	a, b := c.twoSessions()
	mine, theirs := driver.Describe(a).ID, driver.Describe(b).ID
	if mine != "" && mine == theirs {
		c.errorf("Describe of two sessions returned the ID %q twice, expected one for each session", mine)
	}
	c.create(a, "q", writer)
	if again := driver.Describe(a).ID; again != mine {
		c.errorf("Describe of a session returned the ID %q and then %q, expected the same", mine, again)
	}
}
