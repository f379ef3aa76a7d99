//go:build !unix

package demo

import "os"

const canPause = false

func pauseProcess(*os.Process)    {}
func continueProcess(*os.Process) {}
