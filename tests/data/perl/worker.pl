# A producer in a language without a kit, from docs/worker-protocol.md and docs/capture-format.md alone. Its
# client appends messages to a file, which stands for a broker; the file is named by `bootstrap`.
use strict;
use warnings;
no warnings "portable";    # numbers of 64 bits
use JSON::PP;
use List::Util qw(sum0);
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC CLOCK_REALTIME usleep);

my ($OK, $FAIL, $INFO) = (1, 2, 3);
my @CRC = map { my $c = $_; $c = $c & 1 ? 0xEDB88320 ^ ($c >> 1) : $c >> 1 for 1 .. 8; $c } 0 .. 255;

sub crc32 {
    my $crc = 0xFFFFFFFF;
    $crc = $CRC[($crc ^ $_) & 0xFF] ^ ($crc >> 8) for unpack 'C*', shift;
    return $crc ^ 0xFFFFFFFF;
}

sub filler {
    my ($state, $bytes) = (1, '');
    for (1 .. shift) {
        $state = ($state * 1664525 + 1013904223) & 0xFFFFFFFF;
        $bytes .= chr($state >> 24);
    }
    return $bytes;
}

sub payload {
    my %m = (kind => 2, key => 0, attempt => 0, length => 52, @_);
    my $body = pack 'a2CCVVVQ<q<VvvVV', 'BS', 1, @m{qw(kind run_tag instance lane seq due_ns key attempt)}, 0,
        $m{length}, 0;
    $body .= filler($m{length} - 52);
    return $body . pack 'V', crc32($body);
}

# SplitMix64 without the overflow of 64 bits that Perl turns into floating point: products of 32-bit halves.
sub times64 {
    use integer;
    return $_[0] * $_[1];
}

sub size_of {
    my ($least, $most, $instance, $lane, $seq) = @_;
    my $x;
    { use integer; $x = times64($seq + 1, 0x9E3779B97F4A7C15) + ($instance << 32 | $lane); }
    $x = times64($x ^ ($x & ~0) >> 30, 0xBF58476D1CE4E5B9);
    $x = times64($x ^ ($x & ~0) >> 27, 0x94D049BB133111EB);
    $x = ($x ^ ($x & ~0) >> 31) & ~0;
    return $least + (($x >> 32) * ($most - $least + 1) >> 32);
}

# A segment: its header, then rows of one size. A row that was written is the kernel's: SIGKILL loses nothing.
sub segment {
    my ($folder, $name, $table, $row_bytes, $owner, $run_tag, $subscription, $capacity) = @_;
    my $path = sprintf '%s/%s-%d-%06d.seg', $folder, $name, $owner, 0;
    open my $file, '+>:raw', "$path.part" or die "cannot write $path: $!\n";
    syswrite $file, pack('a8vvVVVVVx32', "BSTORM1\0", $table, $row_bytes, $owner, 0, $capacity, $run_tag,
        $subscription) . "\0" x ($row_bytes * $capacity) or die "cannot write $path: $!\n";
    rename "$path.part", $path or die "cannot rename $path: $!\n";
    return { file => $file, row_bytes => $row_bytes, rows => 0 };
}

sub put {
    my ($segment, $row, $offset, $bytes) = @_;
    sysseek $segment->{file}, 64 + $row * $segment->{row_bytes} + $offset, 0;
    syswrite $segment->{file}, $bytes or die "cannot write a row: $!\n";
}

sub add { my ($segment, $bytes) = @_; put($segment, $segment->{rows}, 0, $bytes); return $segment->{rows}++ }

sub opened { return pack 'VvCxQ<q<q<C', @_, 1 }    # lane, attempt, kind, seq, due, start; state
sub answered { return pack 'q<q<q<q<l<l<l<l<C', @_ }    # done, position, ledger .., outcome

sub names {
    my ($folder, @names) = @_;
    open my $file, '>', "$folder/names.jsonl" or die "cannot write names.jsonl: $!\n";
    for my $n (0 .. $#names) {
        print $file encode_json({ id => $n + 1, kind => $names[$n][0], text => $names[$n][1] }), "\n";
    }
}

sub self_test {
    my ($folder, $tag, $t) = (shift, 0xC0FFEE01, 1_000_000_000_000);
    my @of = (run_tag => $tag, instance => 7);
    my $small = payload(@of, lane => 3, seq => 42, due_ns => $t);
    my $large = payload(
        @of, lane => 4, seq => 2**40 + 1, due_ns => $t + 20_000, kind => 1, key => 17, attempt => 2,
        length => 150
    );
    my $sized = join '', map {
        payload(@of, lane => 3, seq => $_, due_ns => $t + 20_000 * $_, length => size_of(60, 90, 7, 3, $_))
    } 0 .. 7;
    my %files = ('payload-52.bin' => $small, 'payload-150.bin' => $large, 'payload-60-90.bin' => $sized);
    for my $name (keys %files) { open my $file, '>:raw', "$folder/$name" or die; print $file $files{$name} }
    names($folder, [stream => 'orders-0'], [stream => 'orders-1'],
        [error => '_MSG_TIMED_OUT: Local: Message timed out'], [subscription => 'group']);
    my $sends = segment($folder, 'sends', 1, 96, 7, $tag, 0, 4);
    add($sends, opened(3, 0, 2, 42, $t, $t + 1500));
    put($sends, 0, 40, answered($t + 9_000_000, 1234, 0, 0, 1, 0, 0, 0, $OK));
    add($sends, opened(4, 2, 1, 2**40 + 1, $t + 20_000, $t + 21_500));
    put($sends, 1, 40, answered($t + 5_000_000_000, -1, 0, 0, 0, 0, 0, 3, $INFO) . chr $OK);
    add($sends, opened(3, 0, 2, 43, $t + 40_000, $t + 41_500));
    my $log = segment($folder, 'log', 2, 104, 1, $tag, 0, 4);
    for my $row ([1234, 1, 0, $small], [1235, 1, 1, $large], [7, 2, 2, 'hello']) {
        my ($position, $stream, $check, $header) = @$row;
        add($log, pack 'q<q<q<q<l<l<l<CCx2a48C', $position, 0, -1, 1_700_000_000_123, $stream, 0, 0, 0, $check,
            $header, 1);
    }
    my $journal = segment($folder, 'deliveries', 3, 104, 2, $tag, 4, 4);
    for my $event ([10, -1, ''], [1, 1234, $small], [5, 1235, '']) {
        my ($kind, $position, $header) = @$event;
        add($journal, pack 'q<q<q<q<l<l<Vl<a48CC', $t++, $position, 0, 0, 1, 0, 1, -1, $header, 0, $kind);
    }
}

sub now_ns { return int(clock_gettime(CLOCK_MONOTONIC) * 1e9) }

sub say_line {
    my ($type, %more) = @_;
    my %clocks = (t_ns => now_ns(), wall_ns => int(clock_gettime(CLOCK_REALTIME) * 1e9));
    print encode_json({ type => $type, %clocks, %more }), "\n";
}

sub produce {
    my $spec = shift;
    my ($part, $group) = ($spec->{producer}, $spec->{producer}{lane_groups}[0]);
    my $ids = $spec->{streams};
    names($spec->{capture_dir}, map { [stream => $_] } sort { $ids->{$a} <=> $ids->{$b} } keys %$ids);
    open my $broker, '>>:raw', $spec->{bootstrap} or die "client refused to start: $spec->{bootstrap}: $!\n";
    my $count = int($part->{rate_per_s} * ($part->{warm_up_s} + $part->{load_s}));
    my $sends = segment($spec->{capture_dir}, 'sends', 1, 96, $part->{instance}, $spec->{run_tag}, 0, $count);
    say_line('ready', pid => $$, client => $spec->{client}{library}, client_version => $ENV{CLIENT_VERSION} // '');
    my (undef, $t0) = split ' ', scalar <STDIN>;
    my @next = (0) x $group->{count};
    for my $i (0 .. $count - 1) {
        my ($lane, $seq) = ($i % $group->{count}, int $i / $group->{count});
        my $due = $t0 + int $i * 1e9 / $part->{rate_per_s};
        usleep(($due - now_ns()) / 1000) if $due > now_ns();
        my $kind = $i < $part->{rate_per_s} * $part->{warm_up_s} ? 1 : 2;
        my $row = add($sends, opened($lane, 0, $kind, $seq, $due, now_ns()));
        my %message = (run_tag => $spec->{run_tag}, instance => $part->{instance}, lane => $lane, seq => $seq);
        syswrite $broker, payload(%message, due_ns => $due, kind => $kind, length => $part->{payload_bytes})
            or die "the broker's disk is full: $!\n";
        put($sends, $row, 40, answered(now_ns(), $next[$lane]++, 0, 0, $lane + 1, 0, 0, 0, $OK));
    }
    my %numbers = (attempted => $count, ok => $count, map { $_ => 0 } qw(fail info open blocked_ns late_max_ns));
    while (my $command = <STDIN>) { last if $command =~ /^(drain|stop)\b/ }
    say_line($_, %numbers, cpu_s => sum0(times), rss_bytes => 0, frozen_ns => 0) for 'stats', 'done';
}

$| = 1;
if (@ARGV == 2 && $ARGV[0] eq '--self-test') { self_test($ARGV[1]); exit 0 }
exit 2 if @ARGV != 1;
open my $file, '<', $ARGV[0] or die "cannot read $ARGV[0]: $!\n";
my $spec = decode_json(join '', <$file>);
eval { produce($spec); 1 } or do {
    chomp(my $text = $@);
    say_line('error', name => 'worker', text => $text, fatal => JSON::PP::true, hint => '');
    exit 4;
};
