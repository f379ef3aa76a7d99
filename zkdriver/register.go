package zkdriver

import "github.com/dlock-go/dlock"

func init() { dlock.Register("zk", Driver{}) }
