package memdriver

import "github.com/dlock-go/dlock"

func init() { dlock.Register("mem", Driver{}) }
