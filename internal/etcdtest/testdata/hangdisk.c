// Runs etcd so that fsync and fdatasync of its write-ahead log do not return while a
// file exists. A Go program makes these calls itself, so no library can wrap them: the
// kernel reports them to a child of this process (seccomp), which lets each one go on.
//
//	hangdisk file program argument...
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_log(const struct seccomp_notif *call) {
	char link[64], path[4096] = {0};
	snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)call->pid, (int)call->data.args[0]);
	return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/wal/") != NULL;
}

static void supervise(int listener, const char *file) {
	for (;;) {
		struct seccomp_notif call = {0};
		struct seccomp_notif_resp answer = {0};
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) {
			if (errno == EINTR || errno == ENOENT)
				continue;
			_exit(1);
		}
		while (is_log(&call) && access(file, F_OK) == 0)
			usleep(10000);
		answer.id = call.id;
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
}

int main(int argc, char **argv) {
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fdatasync, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fsync, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof code / sizeof *code, code};
	if (argc < 3 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return 1;
	int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
	if (listener < 0) {
		perror("seccomp");
		return 1;
	}
	pid_t parent = getpid();
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent) /* it ended before */
			_exit(0);
		supervise(listener, argv[1]);
	}
	close(listener);
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 1;
}
